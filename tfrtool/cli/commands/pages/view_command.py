"""``tfrtool view``."""

from tfrtool.cli.output import Outcome, emit, note, warn
from tfrtool.cli.parameters import SHARDS, WholeNumber, command, shards_of

_HERE = ("127.0.0.1", "localhost", "::1")


@command(
    "tfrtool view shards/pets",
    "tfrtool view 'data/*.tfrecord*' --port 8080 --no-open",
    options={
        "--host ADDRESS=127.0.0.1": "The address to listen at. Any but this machine's own lets "
        "others read the records, if they know the token.",
        "--port PORT=0": "The port to listen at; 0 takes a free one.",
        "--open/--no-open =true": "Open the page in the browser.",
        "--workers N=1": "Processes that read, while another one answers.",
    },
    kinds={"PORT": WholeNumber(0, 65535)},
)
@SHARDS
def view_command(
    shards: tuple[str, ...],
    host: str,
    port: int,
    workers: int,
    as_json: bool,
    **words: bool,
) -> Outcome:
    """Show records in the browser.

    SHARDS: a dataset's directory, files, quoted globs. The page is served to this machine until
    Ctrl-C, and its address has a token that others don't know. Records can be marked there, and
    the browser saves the list for tfrtool filter. Shards and their folders are never changed; what
    is found is kept in a temporary folder until the end.
    """
    import secrets
    import webbrowser

    from tfrtool.view.live import Live
    from tfrtool.view.server import serve

    def ready(url: str) -> None:
        emit({"url": url}) if as_json else note(f"{url} (Ctrl-C ends it)")
        if words["open"]:
            webbrowser.open(url)

    if host not in _HERE:
        warn(f"{host} can be reached by others: who knows the address with its token sees all")
    live = Live(shards[0] if len(shards) == 1 else shards_of(shards), workers=workers)
    for text in live.found.notes:
        note(text)
    try:
        serve(live, host=host, port=port, token=secrets.token_urlsafe(24), on_ready=ready)
    finally:
        live.close()
    return Outcome.FINE
