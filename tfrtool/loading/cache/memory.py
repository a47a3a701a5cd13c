"""What is free for this process: memory, within the limits that the system sets it, and disk."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tfrtool.storage.opening import open_regular

__all__ = ["available_memory", "free_disk"]

_NO_LIMIT = 2**60
"""Version 1 says "no limit" with the highest number of pages that there can be (2**63 - 4096)."""

_LONGEST = 2**20
"""As much as is read of a file of the system's; the longest ones are some tens of kB."""

_OCTAL = re.compile(r"\\([0-7]{3})")

# The files of both versions of control groups: limits, usage, and what of it can be taken back.
# What is above memory.high is taken back at once, so that it is a limit as well.
_FILES = {
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
}


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
    those of each group around it (cgroups(7), versions 1 and 2), which psutil does not know; and
    what is left of its address space (getrlimit(2), RLIMIT_AS). What can't be understood is left
    out of account.

    Args:
        root: where the directories ``proc`` and ``sys`` are.
        address_space: how much of it the process may have, in bytes; None asks the system.
    """
    kibibytes = _field(root / "proc/meminfo", "MemAvailable:")
    bounds = [] if kibibytes is None else [kibibytes * 1024]
    bounds += [left for group in _groups(root) if (left := _left(*group)) is not None]
    if sys.platform != "win32":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if address_space is None and limit != resource.RLIM_INFINITY:
            address_space = limit
        pages = _number(_read(root / "proc/self/statm").partition(" ")[0])
        if address_space is not None and pages is not None:
            bounds.append(max(address_space - pages * os.sysconf("SC_PAGESIZE"), 0))
    return min(bounds, default=None)


def _left(group: Path, version: int) -> int | None:
    """Return what the limit of a control group leaves; None where it has none."""
    limits, usage, reclaimable = _FILES[version]
    numbers = [_number(_read(group / name)) for name in limits]
    limit = min((number for number in numbers if number is not None), default=_NO_LIMIT)
    used = _number(_read(group / usage))
    if limit >= _NO_LIMIT or used is None:
        return None
    # Pages of files that nobody has used lately are given up as soon as memory is wanted.
    idle = _field(group / "memory.stat", reclaimable) or 0
    return max(limit - max(used - idle, 0), 0)


def _groups(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield the directory of this process' control group, and of each around it, by version."""
    own = {}
    for line in _read(root / "proc/self/cgroup").splitlines():  # cgroups(7), /proc/pid/cgroup
        number, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if number == "0" and not controllers:
            own[2] = _inside(path)
        elif "memory" in controllers.split(","):
            own[1] = _inside(path)
    for line in _read(root / "proc/self/mountinfo").splitlines():  # proc(5)
        mount, _, kind = line.partition(" - ")
        fields, kinds = mount.split(" "), kind.split(" ")
        if len(fields) < 6 or len(kinds) < 3:
            continue
        memory = kinds[0] == "cgroup" and "memory" in kinds[2].split(",")
        version = 2 if kinds[0] == "cgroup2" else 1 if memory else 0
        top, point, group = _inside(fields[3]), _inside(fields[4]), own.get(version)
        if top is None or point is None or group is None:
            continue
        # In a container the mount may show a part of the tree that the process' path starts above.
        inside = group.relative_to(top) if group.is_relative_to(top) else PurePosixPath()
        for depth in range(len(inside.parts), -1, -1):
            yield root.joinpath(point.relative_to("/"), *inside.parts[:depth]), version


def _inside(text: str) -> PurePosixPath | None:
    """Return an absolute path that the system wrote down; None if it is none, or leads upwards."""
    path = PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), text))
    return path if path.is_absolute() and ".." not in path.parts else None


def _field(path: Path, name: str) -> int | None:
    """Return the number in a file's line that begins with a name; None if there is none."""
    for line in _read(path).splitlines():
        words = line.split()
        if words[:1] == [name]:
            return _number(" ".join(words[1:2]))
    return None


def _read(path: Path) -> str:
    """Return the text of a file; none where it can't be read."""
    try:
        with open_regular(path) as file:
            return file.read(_LONGEST).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int | None:
    text = text.strip()
    # int() takes more than the system writes: signs, underscores, other scripts, endless digits.
    return int(text) if len(text) <= 20 and text.isascii() and text.isdigit() else None
