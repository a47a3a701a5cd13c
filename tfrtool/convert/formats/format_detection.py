"""Which format files have, by their names and first bytes."""

import contextlib
import json
import re
from collections.abc import Sequence

from tfrtool.convert.formats.format_specs import FORMAT_NAMES, FORMATS, FormatSpec
from tfrtool.errors import SourceError, UsageError, os_errors_as
from tfrtool.records.shard_sets import is_shard_name, natural_order
from tfrtool.records.shards import matching_files
from tfrtool.sources.formats.saved_datasets import saved_files
from tfrtool.storage.commit import check_not_publishing
from tfrtool.storage.limits import MAX_FILES_OF_A_KIND
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath

_HEAD = 4096
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".json")
_HINT = "decompress it, or save it as Parquet or as JSON Lines"
_OBJECT_LIST = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*[{\]]")
"""How a list of JSON objects starts."""


def find_format_files(path: AnyPath, name: str | None) -> Sequence[AnyPath]:
    """Return the files of a pattern, a file, or those of one format in a directory.

    The latter are in it or in folders in it, by their names. Shards are found elsewhere.
    """
    if not path.is_dir():
        return [path] if path.exists() else matching_files(str(path)) or [path]
    if files := saved_files(path):
        return files
    check_not_publishing(path)
    files = _files_in(path)
    visible = [file for file in files if not file.name.startswith(".")]
    for spec in FORMATS.values() if name is None else (FORMATS[name],):
        if matches := [file for file in visible if spec.file_pattern.search(file.name)]:
            matches.sort(key=lambda file: natural_order(str(file)))
            is_shards = spec.name == "tfrecord" or (name is None and _has_unnamed_shard(visible))
            return () if is_shards else matches
    packed = [file for file in files if file.name.lower().endswith(_PACKED)][:1]
    may_be_shards = bool(packed) and name in (None, "tfrecord")
    if may_be_shards and any(map(_starts_shard, visible[:MAX_FILES_OF_A_KIND])):
        return ()  # such as the data_tfrecord-00000-of-00001.gz of TFX
    return packed


def other_format_files(path: AnyPath, read: FormatSpec) -> list[AnyPath]:
    """Return the files of a directory that have another format's name, and of folders in it.

    Those that are named like shards are not among them, if shards are read: a note names them.
    """
    if not path.is_dir() or saved_files(path):
        return []
    named = [(file, format_of_name(file.name)) for file in _files_in(path)]
    others = [
        file
        for file, spec in named
        if spec is not None and spec.file_pattern != read.file_pattern and file.name[0] != "."
    ]
    return [file for file in others if read.name != "tfrecord" or not is_shard_name(file.name)]


def _files_in(path: AnyPath) -> list[AnyPath]:
    """Return the files of a directory, and of folders in it that aren't hidden."""
    files: list[AnyPath] = []
    for child in path.iterdir():
        if child.name.startswith("."):  # such as the folder of an interrupted write
            continue
        with contextlib.suppress(OSError):
            files += [child] if child.is_file() else [p for p in child.iterdir() if p.is_file()]
    return files


def _has_unnamed_shard(files: Sequence[AnyPath]) -> bool:
    """Return whether a file whose name says nothing is a shard, such as part-00000."""
    unnamed = [file for file in files if format_of_name(file.name) is None]
    candidates = [file for file in unnamed if is_shard_name(file.name) is not False]
    return any(map(_starts_shard, candidates[:MAX_FILES_OF_A_KIND]))


def format_of_files(paths: Sequence[AnyPath]) -> FormatSpec:
    """Return the format of files; `UsageError` if they have several."""
    formats = {_format_of_file(path): path for path in reversed(paths)}
    if len(formats) > 1:
        raise UsageError(
            "the files have different formats",
            found=" and ".join(
                f"{name} ({path.name})" for name, path in sorted(formats.items())[:2]
            ),
            hint="use --from to read the files of one format",
        )
    return FORMATS[next(iter(formats))]


def format_of_name(name: str) -> FormatSpec | None:
    """Return the format that a file name has, if any."""
    return next((spec for spec in FORMATS.values() if spec.file_pattern.search(name)), None)


def _format_of_file(path: AnyPath) -> str:
    with os_errors_as(SourceError, path), open_regular(path) as file:
        head = file.read(_HEAD)
    if (named := format_of_name(path.name)) is not None:
        return named.name
    for name in FORMATS:
        if FORMATS[name].starts(head):
            return name
    if path.suffix.lower() == ".json" and _has_json_rows(head):
        return "jsonl"
    packed = path.name.lower().endswith(_PACKED)
    hint = _HINT if packed else "use --from NAME to choose one"
    raise SourceError("unknown format", path=path, expected=f"one of {FORMAT_NAMES}", hint=hint)


def _starts_shard(path: AnyPath) -> bool:
    with contextlib.suppress(OSError), open_regular(path, buffering=0) as file:
        return FORMATS["tfrecord"].starts(file.read(_HEAD))
    return False


def _has_json_rows(head: bytes) -> bool:
    """Return whether the first bytes are those of a list of objects, or have one on a line."""
    if _OBJECT_LIST.match(head):
        return True
    with contextlib.suppress(ValueError, RecursionError):
        return isinstance(json.loads(head.split(b"\n")[0]), dict)
    return False
