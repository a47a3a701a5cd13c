"""What is free for a process, told by files like those of Linux."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.loading.cache import available_memory, free_disk

Files = dict[str, str | bytes]

MIB = 2**20
NO_LIMIT = 9223372036854771712


def _tree(root: Path, files: Files) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def _meminfo(mebibytes: int) -> str:
    return f"MemTotal:  99999999 kB\nMemFree:  1 kB\nMemAvailable:  {mebibytes * 1024} kB\n"


def _v2(group: str, limit: object, used: int, inactive: int = 0) -> Files:
    folder = f"sys/fs/cgroup{group}"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon 1\nfile 2\ninactive_file {inactive}\nactive_file 5\n",
    }


def _v1(group: str, limit: int, used: int, inactive: int = 0) -> Files:
    folder = f"sys/fs/cgroup/memory{group}"
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": f"inactive_file 7\ntotal_inactive_file {inactive}\n",
    }


def _available(root: Path, files: Files) -> int | None:
    return available_memory(_tree(root, files))


def test_memory_without_groups(tmp_path: Path) -> None:
    """Without control groups, what can be used without swapping is free."""
    assert _available(tmp_path, {"proc/meminfo": _meminfo(100)}) == 100 * MIB


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_own_group_limits(tmp_path: Path, version: str) -> None:
    """A control group of either version bounds what is free; idle pages of files count as free."""
    own = {"v1": "4:memory:/a\n1:cpu:/\n", "v2": "0::/a\n"}[version]
    group = {"v1": _v1, "v2": _v2}[version]("/a", 50 * MIB, 30 * MIB, 10 * MIB)
    files: Files = {
        "proc/meminfo": _meminfo(100),
        "proc/self/cgroup": own,
    }
    assert _available(tmp_path, files | group) == 30 * MIB


@pytest.mark.parametrize("holder", ["", "/a", "/a/b", "/a/b/c"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_limit_may_sit_on_any_group_around(tmp_path: Path, version: str, holder: str) -> None:
    """The tightest group of the whole chain decides, wherever in it that is."""
    own = {"v1": "9:name=systemd:/\n4:cpu,memory:/a/b/c\n0::/\n", "v2": "0::/a/b/c\n"}[version]
    files: Files = {
        "proc/meminfo": _meminfo(100),
        "proc/self/cgroup": own,
    }
    for group in ("", "/a", "/a/b", "/a/b/c"):
        held = group == holder
        if version == "v1":
            files |= _v1(group, 40 * MIB if held else NO_LIMIT, 5 * MIB)
        else:
            files |= _v2(group, 40 * MIB if held else "max", 5 * MIB)
    files |= _v1("/other", MIB, MIB) | _v2("/other", MIB, MIB)
    assert _available(tmp_path, files) == 35 * MIB


def test_group_in_a_container(tmp_path: Path) -> None:
    """A container sees its own group at the root of the mount, under a path of the host's."""
    files = {
        "proc/meminfo": _meminfo(100),
        "proc/self/cgroup": "4:memory:/docker/abc/inner\n",
        **_v1("", 30 * MIB, MIB),
    }
    assert _available(tmp_path, files) == 29 * MIB


def test_high_is_a_limit_too(tmp_path: Path) -> None:
    """What a group holds above memory.high is taken back, so that it is no room for a cache."""
    files: Files = {
        "proc/self/cgroup": "0::/",
        **_v2("", "max", 400),
        "sys/fs/cgroup/memory.high": "1000\n",
    }
    assert _available(tmp_path, files) == 600


def test_full_group_has_nothing_left(tmp_path: Path) -> None:
    """A group that uses more than it may leaves nothing, and never less than nothing."""
    files: Files = {
        "proc/self/cgroup": "0::/",
    }
    assert _available(tmp_path, files | _v2("", 10 * MIB, 11 * MIB)) == 0


def test_idle_pages_beyond_all_use_are_no_bonus(tmp_path: Path) -> None:
    """However many pages are said to be idle, no more is free than the limit."""
    files: Files = {
        "proc/self/cgroup": "0::/",
    }
    assert _available(tmp_path, files | _v2("", 10 * MIB, MIB, 5 * MIB)) == 10 * MIB


def test_nothing_known(tmp_path: Path) -> None:
    """Where the system tells nothing, the answer is that it isn't known."""
    assert _available(tmp_path, {}) is None
    unlimited: Files = {
        "proc/self/cgroup": "4:memory:/\n",
    }
    assert _available(tmp_path, unlimited | _v1("", NO_LIMIT, MIB)) is None


NAMES = [
    "proc/meminfo",
    "proc/self/cgroup",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.stat",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\x00",
        b"max",
        b"-5",
        b"1_000",
        "MemAvailable: \u0663 kB\ninactive_file \u0663".encode(),
        b"9" * 5000,
        b"MemAvailable:\nMemAvailable: -1 kB",
        b"0::/../../etc\n4:memory\n::::\nx",
        b"1 2 3 4 - cgroup2\n31 30 0:28 ../.. ../.. rw - cgroup2 a rw",
        b"inactive_file\ninactive_file 99999999999999999999999\ninactive_file -3",
    ],
)
def test_garbage_is_skipped_of_account(tmp_path: Path, name: str, text: bytes) -> None:
    """Whatever one of the files holds, the others still count, and no error comes."""
    files: Files = {
        "proc/meminfo": _meminfo(100),
        "proc/self/cgroup": "0::/",
        **_v2("", 50 * MIB, 20 * MIB, MIB),
    }
    found = _available(tmp_path, files | {name: text})
    assert found in (100 * MIB, 50 * MIB, 31 * MIB, 30 * MIB)


@given(available=st.integers(0, 10**6), limit=st.integers(0, 10**9), used=st.integers(0, 10**9))
def test_never_more_than_any_bound(
    tmp_path_factory: pytest.TempPathFactory, available: int, limit: int, used: int
) -> None:
    """What is free is at most each of the bounds, and never negative."""
    files: Files = {
        "proc/meminfo": f"MemAvailable: {available} kB",
        "proc/self/cgroup": "0::/",
    }
    found = _available(tmp_path_factory.mktemp("root"), files | _v2("", limit, used))
    assert found == min(available * 1024, max(limit - used, 0))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_free_memory_is_plausible() -> None:
    """On Linux there is a number, of at least some megabytes."""
    free = available_memory()
    assert free is not None
    assert free > 10 * MIB


def test_free_disk_of_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    """It is what is free where the directory would be."""
    free = free_disk(tmp_path / "not" / "yet")
    assert free is not None
    status = os.statvfs(tmp_path)
    total = status.f_frsize * status.f_blocks
    assert 0 < free < total
    assert abs(free - status.f_frsize * status.f_bavail) < total // 10
