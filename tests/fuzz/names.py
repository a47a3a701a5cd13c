"""Fuzzing names: those that records give to files, and those that files have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath

from tests.fuzz.target import Target, scratch
from tfrtool.errors import UsageError
from tfrtool.inspection.extract.safe_names import (
    NAME_BYTES,
    numbered,
    safe_part,
    safe_path,
    shard_stem,
    with_suffix,
)
from tfrtool.records.shard_sets import (
    MISSING_NAMED,
    ShardName,
    check_dataset_name,
    check_version,
    find_conflicts,
    group_shards,
    is_shard_name,
    natural_order,
)

__all__ = ["TARGET"]

_NAMES = (
    b"PetImages/Cat/1.jpg", b"../../etc/passwd", b"C:\\x\\y.jpg", b"\\\\server\\share\\z",
    b"con.jpg", b"a\0b", b"\xff\xfe.jpg", b"a. /b..", b"", b"x" * 300 + b".jpg", b"f/" * 40 + b"g",
    b"mnist-train.tfrecord-00000-of-00008\nmnist-train.tfrecord-00003-of-00008.gz\n"
    b"mnist-train.tfrecord-00000-of-00004\ntrain_7_of_9.tfrecord\n1.2.3",
    b"events.out.tfevents.1700000000.host\na-9-of-999999999999999999\na-00-of-00",
    "\u0661-of-\u0662\n00001\u0661-of-00002".encode(),
)  # fmt: skip
_ROOT = Path("shards")


def seeds() -> Iterator[bytes]:
    """Yield names that are usual, hostile, or of shards; a line each where there are several."""
    yield from _NAMES


def check(data: bytes) -> None:
    """No name leads out of its folder, and no name of a shard is too much."""
    for windows in (False, True):
        _check_path(data, windows)
        _check_part(data.decode("utf-8", "replace"), windows)
    _check_on_disk(safe_path(data))
    lines = [line.decode("utf-8", "surrogateescape") for line in data.split(b"\n")]
    for line in lines:
        _check_shard_name(line)
    _check_sets([name for name in lines if name and "/" not in name and name not in (".", "..")])


def _check_name(part: str, windows: bool) -> None:
    assert part not in ("", ".", "..")
    assert len(part.encode("utf-8")) <= NAME_BYTES
    assert not any(character in '/\\\0\x7f<>:"|?*' for character in part if windows)
    assert not any(character in "/\\" or character < " " for character in part)
    assert part[-1] not in ". "
    assert PureWindowsPath(part).drive == ""


def _check_path(data: bytes, windows: bool) -> None:
    made = safe_path(data, windows=windows)
    for part in made:
        _check_name(part, windows)
        again = numbered(part, 12)
        _check_name(again, windows)
        assert again != numbered(part, 13)
        _check_name(with_suffix(part, "image/jpeg"), windows)
    path = "/".join(made)
    assert not PurePosixPath(path).is_absolute()
    assert not PureWindowsPath(path).anchor
    assert safe_path(path.encode(), windows=windows) == made


def _check_part(text: str, windows: bool) -> None:
    part = safe_part(text, windows=windows)
    if part:
        _check_name(part, windows)
        assert safe_part(part, windows=windows) == part


def _check_on_disk(parts: tuple[str, ...]) -> None:
    """The system takes the name, and puts the file below the folder."""
    root = scratch() / "root"
    path = root.joinpath(*parts)
    if parts:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
        assert path.resolve().is_relative_to(root.resolve())
        assert path.resolve() != root.resolve()
        shutil.rmtree(root)


def _check_shard_name(name: str) -> None:
    parsed = ShardName.parse(name)
    assert parsed is None or str(parsed) == name
    assert is_shard_name(name) in (True, False, None)
    natural_order(name)
    for look in (check_dataset_name, check_version):
        with suppress(UsageError):
            assert look(name) == name
    if name and "/" not in name:
        _check_name(shard_stem(Path(name)), windows=False)


def _check_sets(names: list[str]) -> None:
    paths = [_ROOT / name for name in names if "\0" not in name]  # such are refused
    sets = group_shards(paths)
    grouped = [path for one in sets for path in one.paths]
    assert sorted(grouped) == sorted(set(paths))
    for one in sets:
        assert one.name
        assert len(one.missing) == min(max(one.n_missing, 0), MISSING_NAMED)
        assert not {_ROOT / name for name in one.missing} & set(paths)
        assert set(one.extra) <= set(one.paths)
    for rivals in find_conflicts(sets):
        assert len({one.count for one in rivals}) == len(rivals)


TARGET = Target(check=check, seeds=seeds, max_length=4096)
