"""What is free for this process: memory, within the limits that the system sets it, and disk."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tfrtool.storage.opening import open_regular

__all__ = ["available_memory", "cache_bytes", "free_disk"]

_IMAGE_OVERHEAD = 512
"""Bytes that tf.data's memory cache takes an image beside its pixels: the label, and what
describes two tensors. Measured as 416 with TensorFlow 2.21, over 200,000 images of 8 pixels."""

_NO_LIMIT = 2**60
"""Version 1 says "no limit" with the highest number of pages that there can be (2**63 - 4096)."""

_LONGEST = 2**20
"""As much as is read of a file of the system's; the longest ones are some tens of kB."""

_OCTAL = re.compile(r"\\([0-7]{3})")


def cache_bytes(images: int, image_size: int, value_size: int = 1) -> int:
    """Return what tf.data's cache of images in memory takes, in bytes.

    Args:
        images: how many.
        image_size: of each, in pixels, both ways; there are three channels.
        value_size: bytes a channel: 1 for uint8, 4 for float32.
    """
    return images * (image_size * image_size * 3 * value_size + _IMAGE_OVERHEAD)


def free_disk(directory: Path) -> int | None:
    """Return how many bytes can be written below a directory, which need not be there yet.

    None where that can't be told.
    """
    for path in (directory, *directory.parents):
        if path.exists():
            try:
                return shutil.disk_usage(path).free
            except OSError:
                return None
    return None


def available_memory(root: Path = Path("/"), address_space: int | None = None) -> int | None:
    """Return how much memory is free for this process, in bytes; None where that can't be told.

    It is the least of these, as far as they are there: what Linux says can be used without
    swapping (proc(5), MemAvailable); what the limits of this process' control group leave, and
    those of each group around it (cgroups(7), versions 1 and 2); and what is left of its address
    space (getrlimit(2), RLIMIT_AS). What can't be understood is left out of account.

    Args:
        root: where the directories ``proc`` and ``sys`` are.
        address_space: how much of it the process may have, in bytes; None asks the system.
    """
    if address_space is None:
        address_space = _address_space_limit()
    bounds = [_available_in_all(root / "proc/meminfo")]
    bounds += [_left(*group) for group in _groups(root)]
    if address_space is not None:
        used = _address_space_used(root / "proc/self/statm")
        bounds.append(None if used is None else max(address_space - used, 0))
    return min((bound for bound in bounds if bound is not None), default=None)


def _available_in_all(meminfo: Path) -> int | None:
    kibibytes = _fields(meminfo, ":").get("MemAvailable")
    return None if kibibytes is None else kibibytes * 1024


def _address_space_limit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _address_space_used(statm: Path) -> int | None:
    pages = _whole_number(_read(statm).partition(" ")[0])
    return None if pages is None or sys.platform == "win32" else pages * os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """What the files of a version of control groups are called."""

    limits: tuple[str, ...]
    usage: str
    reclaimable: str


# What is above "high" is taken back at once, so that it is a limit as well.
_VERSION_2 = _Version(
    limits=("memory.max", "memory.high"), usage="memory.current", reclaimable="inactive_file"
)
_VERSION_1 = _Version(
    limits=("memory.limit_in_bytes",),
    usage="memory.usage_in_bytes",
    reclaimable="total_inactive_file",
)


def _left(path: Path, version: _Version) -> int | None:
    """Return what the limit of a control group leaves; None where it has none."""
    limits = [_whole_number(_read(path / name)) for name in version.limits]
    limit = min((limit for limit in limits if limit is not None), default=_NO_LIMIT)
    used = _whole_number(_read(path / version.usage))
    if limit >= _NO_LIMIT or used is None:
        return None
    # Pages of files that nobody has used lately are given up as soon as memory is wanted.
    reclaimable = _fields(path / "memory.stat", " ").get(version.reclaimable, 0)
    return max(limit - max(used - reclaimable, 0), 0)


def _groups(root: Path) -> Iterator[tuple[Path, _Version]]:
    """Yield the directory of this process' control group, and of each around it."""
    own = _own_groups(root / "proc/self/cgroup")
    for top, point, version in _mounts(root / "proc/self/mountinfo"):
        if version not in own:
            continue
        group = own[version]
        # In a container the mount may show a part of the tree that the process' path starts above.
        inside = group.relative_to(top) if group.is_relative_to(top) else PurePosixPath()
        start = root / point.relative_to("/")
        for depth in range(len(inside.parts), -1, -1):
            yield start.joinpath(*inside.parts[:depth]), version


def _own_groups(listing: Path) -> dict[_Version, PurePosixPath]:
    """Return the paths of this process' control groups (cgroups(7), /proc/pid/cgroup)."""
    own = {}
    for line in _read(listing).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path.startswith("/") and ".." not in path.split("/"):
            if number == "0" and not controllers:
                own[_VERSION_2] = PurePosixPath(path)
            elif "memory" in controllers.split(","):
                own[_VERSION_1] = PurePosixPath(path)
    return own


def _mounts(listing: Path) -> Iterator[tuple[PurePosixPath, PurePosixPath, _Version]]:
    """Yield what part of which tree of groups is mounted where (proc(5), /proc/pid/mountinfo)."""
    for line in _read(listing).splitlines():
        mount, _, kind = line.partition(" - ")
        fields, kinds = mount.split(" "), kind.split(" ")
        if len(fields) < 6 or len(kinds) < 3:
            continue
        top, point = (PurePosixPath(_unescape(field)) for field in fields[3:5])
        if not top.is_absolute() or not point.is_absolute() or ".." in point.parts:
            continue
        if kinds[0] == "cgroup2":
            yield top, point, _VERSION_2
        elif kinds[0] == "cgroup" and "memory" in kinds[2].split(","):
            yield top, point, _VERSION_1


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _fields(path: Path, separator: str) -> dict[str, int]:
    """Return the numbers of a file whose lines are a name, a separator, a number, and a unit."""
    fields = {}
    for line in _read(path).splitlines():
        name, _, value = line.partition(separator)
        number = _whole_number(value.strip().partition(" ")[0])
        if number is not None:
            fields[name] = number
    return fields


def _read(path: Path) -> str:
    """Return the text of a file; none where it can't be read."""
    try:
        with open_regular(path) as file:
            return file.read(_LONGEST).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


def _whole_number(text: str) -> int | None:
    text = text.strip()
    # int() takes more than the system writes: signs, underscores, other scripts, endless digits.
    return int(text) if len(text) <= 20 and text.isascii() and text.isdigit() else None
