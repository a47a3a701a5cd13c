"""Whether a cache fits: predicted from the shards, held against the memory that is free."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_memory", "cache_bytes"]

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def cache_bytes(images: int, image_size: int) -> int:
    """Return what a cache of uint8 images takes, in bytes."""
    return images * image_size * image_size * 3


def available_memory() -> int | None:
    """Return how much memory is free for this process, in bytes; None where that can't be told.

    Linux says how much can be used without swapping (proc(5), MemAvailable); a control group may
    allow less (cgroups(7), version 2).
    """
    free = _meminfo()
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        left = max(limit - used, 0)
        free = left if free is None else min(free, left)
    return free


def _meminfo() -> int | None:
    try:
        lines = _MEMINFO.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
