"""What is free for this process: memory, within the limits that the system sets it, and disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from tfrtool.storage.opening import open_regular

_NO_LIMIT = 2**60
"""Version 1 says "no limit" with the highest number of pages that there can be (2**63 - 4096)."""

_LONGEST = 2**20
"""As much as is read of a file of the system's; the longest ones are some tens of kB."""

# The files of both versions of control groups: limits, usage, and what of it can be taken back.
# What is above memory.high is taken back at once, so that it is a limit as well.
_FILES: dict[int, tuple[tuple[str, ...], str, str]] = {
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


def available_memory(root: Path = Path("/")) -> int | None:
    """Return how much memory is free for this process, in bytes; None where that can't be told.

    It is the least of these, as far as they are there: what Linux says can be used without
    swapping (proc(5), MemAvailable); and what the limits of this process' control group leave, and
    those of each group around it (cgroups(7), versions 1 and 2), which psutil does not know. The
    directories ``proc`` and ``sys`` are in ``root``.
    """
    kibibytes = _number(root / "proc/meminfo", "MemAvailable:")
    bounds = [None if kibibytes is None else kibibytes * 1024]
    for line in _lines(root / "proc/self/cgroup"):  # number:controllers:path, by cgroups(7)
        number, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if number == "0" and not controllers:
            top, files = root / "sys/fs/cgroup", _FILES[2]
        elif "memory" in controllers.split(","):
            top, files = root / "sys/fs/cgroup/memory", _FILES[1]
        else:
            continue
        # In a container its own group may be at the top, and nothing at the path.
        parts = [] if ".." in path else path.strip("/").split("/")
        groups = (top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))
        bounds += [_left(group, *files) for group in groups]
    return min((bound for bound in bounds if bound is not None), default=None)


def _left(group: Path, limits: tuple[str, ...], usage: str, reclaimable: str) -> int | None:
    """Return what the limit of a control group leaves; None where it has none."""
    numbers = [_number(group / name) for name in limits]
    limit = min((number for number in numbers if number is not None), default=_NO_LIMIT)
    used = _number(group / usage)
    if limit >= _NO_LIMIT or used is None:
        return None
    # Pages of files that nobody has used lately are given up as soon as memory is wanted.
    idle = _number(group / "memory.stat", reclaimable) or 0
    return max(limit - max(used - idle, 0), 0)


def _number(path: Path, name: str = "") -> int | None:
    """Return the number after a name in a file, or of a file that is one; None if it is none."""
    for line in _lines(path):
        if name and not line.startswith(f"{name} "):
            continue
        text = line.split(" ")[1] if name else line
        # int() takes more than the system writes: signs, underscores, other scripts, many digits.
        return int(text) if len(text) <= 20 and text.isascii() and text.isdigit() else None
    return None


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, with single spaces; none where it can't be read."""
    try:
        with open_regular(path) as file:
            text = file.read(_LONGEST).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return []
    return [" ".join(line.split()) for line in text.splitlines()]
