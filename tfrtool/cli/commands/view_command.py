"""``tfrtool view``."""

from collections.abc import Mapping

from tfrtool.cli.output import Outcome, emit, note, warn
from tfrtool.cli.parameters import SHARDS, command, resolve_shards
from tfrtool.storage.arguments import as_path
from tfrtool.view.view_options import ViewOptions

_HERE = ("127.0.0.1", "localhost", "::1")


@command(
    "tfrtool view shards/pets",
    "tfrtool view 'data/*.tfrecord*' --port 8080 --no-open",
    "tfrtool view shards/pets --predictions evaluation/predictions.jsonl",
    options=ViewOptions,
)
@SHARDS
def view_command(
    shards: tuple[str, ...],
    host: str,
    port: int,
    workers: int,
    as_stored: bool,
    types: Mapping[str, str] | None,
    predictions: str | None,
    as_json: bool,
    **words: bool,
) -> Outcome:
    """Browse records in a web browser.

    SHARDS are files, quoted globs and directories. Starts a local web server, which runs until you
    press Ctrl-C. The address of the page contains a secret token. The tags that you
    give records are kept as lists for tfrtool filter and edit, in your data folder. Shards and
    their folders are never changed.
    """
    import webbrowser

    from tfrtool.view.live import Live
    from tfrtool.view.server import serve
    from tfrtool.view.stored_token import TOKEN_DAYS, new_token, stored_token

    def ready(url: str) -> None:
        emit({"url": url} if as_json else f"Viewer: {url} (Ctrl-C stops it)")
        if words["open"]:
            webbrowser.open(url)

    if host not in _HERE:
        warn(f"other machines can reach {host}; whoever has the token can see all records")
    found = shards[0] if len(shards) == 1 else resolve_shards(shards)
    live = Live(
        found,
        workers=workers,
        as_stored=as_stored,
        types=types,
        predictions=None if predictions is None else as_path(predictions),
    )
    for text in live.found.notes:
        note(text)
    is_stored = port != 0 and host in _HERE
    try:
        serve(
            live,
            host=host,
            port=port,
            token=stored_token(live.found.arguments, port) if is_stored else new_token(),
            cookie_seconds=TOKEN_DAYS * 86400 if is_stored else None,
            on_ready=ready,
        )
    finally:
        live.close()
    return Outcome.FINE
