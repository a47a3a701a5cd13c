"""Where images are kept, decided from numbers alone, and what is free."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tfrtool.errors import UsageError
from tfrtool.loading.cache import (
    CachePlan,
    CacheRequest,
    available_memory,
    free_disk,
    plan_cache,
)
from tfrtool.loading.options import Cache, LoadOptions, Recipe

GB = 10**9
FEATURES: Cache = "features"
MEMORY: Cache = "memory"
DISK: Cache = "disk"
NONE: Cache = "none"

CATS_VS_DOGS = CacheRequest(
    images=23_262,
    image_size=224,
    epochs=5,
    feature_size=1280,
    free_memory=lambda: 24 * GB,
    free_disk=lambda: 99 * GB,
)
"""3.5 GB as uint8, 14.0 GB as float32, 0.12 GB as features."""


def _plan(**changes: Any) -> CachePlan:
    for name in {"free_memory", "free_disk"} & changes.keys():
        changes[name] = partial(int, changes[name]) if changes[name] is not None else lambda: None
    return plan_cache(replace(CATS_VS_DOGS, **changes))


def test_cache_is_a_byte_a_channel_and_little_more() -> None:
    """An image of 224 x 224 pixels takes 150,528 bytes, and under 1 % beside; in float32 4 times.

    That is what crashes notebooks: all of cats_vs_dogs takes 14.0 GB, and 25.1 GB at 300 pixels.
    """
    size = CATS_VS_DOGS.bytes(MEMORY)
    assert 150_528 * 23_262 <= size < 1.01 * 150_528 * 23_262
    published = [replace(CATS_VS_DOGS, image_size=side).bytes(MEMORY, 4) for side in (224, 300)]
    assert [round(size / 1e9, 1) for size in published] == [14.0, 25.1]


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        ({}, MEMORY),
        ({"augmented": True}, MEMORY),
        ({"free_memory": 7_100_000_000}, MEMORY),
        ({"free_memory": 6_900_000_000}, DISK),
        ({"free_memory": None}, DISK),
        ({"free_memory": GB, "free_disk": 7_100_000_000}, DISK),
        ({"free_memory": GB, "free_disk": 6_900_000_000}, NONE),
        ({"free_memory": GB, "free_disk": None}, NONE),
        ({"epochs": 1}, NONE),
        ({"base_frozen": True}, FEATURES),
        ({"base_frozen": True, "epochs": 1}, FEATURES),
        ({"base_frozen": True, "free_memory": None}, FEATURES),
        ({"base_frozen": True, "augmented": True}, MEMORY),
        ({"base_frozen": True, "free_memory": 200_000_000}, DISK),
        ({"base_frozen": True, "feature_size": 7 * 7 * 1280 * 4}, MEMORY),
        ({"augmented": True, "before_resize": True, "on_disk": True}, NONE),
        ({"on_disk": True}, DISK),
        ({"on_disk": True, "epochs": 1}, DISK),
        ({"on_disk": True, "free_disk": 0, "free_memory": 0}, DISK),
        ({"on_disk": True, "base_frozen": True}, FEATURES),
    ],
)
def test_unasked_takes_the_cheapest_that_fits(changes: dict[str, Any], cache: Cache) -> None:
    """Features before memory before disk before nothing, each within half of what is free."""
    assert _plan(**changes).cache is cache


@pytest.mark.parametrize(
    ("asked", "changes", "cache"),
    [
        (NONE, {"base_frozen": True}, NONE),
        (MEMORY, {"base_frozen": True}, MEMORY),
        (MEMORY, {"epochs": 1}, MEMORY),
        (MEMORY, {"free_memory": 4 * GB}, MEMORY),
        (MEMORY, {"free_memory": None}, MEMORY),
        (DISK, {}, DISK),
        (DISK, {"free_disk": 4 * GB}, DISK),
        (DISK, {"free_disk": None}, DISK),
        (DISK, {"free_disk": 0, "on_disk": True}, DISK),
        (FEATURES, {"base_frozen": True}, FEATURES),
        (FEATURES, {"base_frozen": True, "free_memory": 140_000_000}, FEATURES),
        (FEATURES, {"base_frozen": True, "feature_size": None}, FEATURES),
    ],
)
def test_what_is_asked_for_is_done(asked: Cache, changes: dict[str, Any], cache: Cache) -> None:
    """What the user asked for is done where it can be, also where auto would do otherwise."""
    plan = _plan(asked=asked, **changes)
    assert plan.cache is cache
    assert "requested" in plan.reason


@pytest.mark.parametrize("changes", [{"base_frozen": True, "augmented": True}, {}])
@pytest.mark.parametrize("free", [24 * GB, GB, None])
def test_impossible_features_fall_back_and_say_so(
    changes: dict[str, Any], free: int | None
) -> None:
    """Features that can't be kept give way to what auto would do, and the reason tells it."""
    plan = _plan(asked=FEATURES, free_memory=free, **changes)
    auto = _plan(free_memory=free, **changes)
    assert plan.cache is auto.cache
    assert plan.reason.startswith("not features")
    assert plan.reason.endswith(auto.reason)


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"asked": MEMORY, "free_memory": 3 * GB}, "3,351 MiB"),
        ({"asked": MEMORY, "free_memory": 3_550_000_000}, "3,351 MiB"),
        ({"asked": DISK, "free_disk": GB}, "3,340 MiB"),
        ({"asked": FEATURES, "base_frozen": True, "free_memory": 10**8}, "114 MiB"),
        ({"recipe": "notebook", "free_memory": 12 * GB}, "13,369 MiB"),
        ({"recipe": "notebook", "image_size": 300, "free_memory": 25 * GB}, "23,970 MiB"),
    ],
)
def test_what_can_not_fit_is_refused(changes: dict[str, Any], needed: str) -> None:
    """Rather than crash later: the error tells bytes needed, bytes free, and the way out."""
    with pytest.raises(UsageError) as caught:
        _plan(**changes)
    error = caught.value
    free = changes["free_disk" if "free_disk" in changes else "free_memory"]
    assert str(error.found).startswith(needed)
    assert f"{free / 2**20:,.0f} MiB free" in str(error.expected)
    assert "--" in str(error.hint)


def test_published_recipes_have_their_own_rules() -> None:
    """The notebook keeps four bytes a channel in memory, whatever the epochs; naive keeps none."""
    notebook = _plan(recipe="notebook", epochs=1)
    assert notebook.cache == MEMORY
    assert notebook.reason.startswith("13,369 MiB of float32")
    assert _plan(recipe="naive", base_frozen=True).cache == NONE


def test_reason_has_the_numbers() -> None:
    """People are told what is kept, how large it is, and what is free."""
    assert _plan(images=1000, free_memory=23_000 * 2**20).reason == (
        "144 MiB of uint8 in memory, with 23,000 MiB free"
    )
    assert "0.6 MiB" in _plan(images=4).reason
    assert _plan(free_memory=GB).reason == (
        "no room for 3,351 MiB of uint8 in memory, with 954 MiB free; "
        "3,340 MiB of uint8 on disk, with 94,414 MiB free"
    )


SIZES = st.none() | st.integers(0, 40 * GB)
MEASURES: Any = SIZES.map(lambda size: lambda: size)
REQUESTS = st.builds(
    CacheRequest,
    images=st.integers(0, 50_000),
    image_size=st.integers(1, 400),
    epochs=st.integers(1, 3),
    asked=st.none() | st.sampled_from(get_args(Cache)),
    recipe=st.sampled_from(get_args(Recipe)),
    base_frozen=st.booleans(),
    augmented=st.booleans(),
    feature_size=st.none() | st.integers(1, 100_000),
    free_memory=MEASURES,
    free_disk=MEASURES,
    on_disk=st.booleans(),
)


def _or_refused(request: CacheRequest) -> CachePlan | None:
    try:
        return plan_cache(request)
    except UsageError:
        return None


@given(REQUESTS)
def test_never_more_than_is_free(request: CacheRequest) -> None:
    """Whatever is asked for, what is planned fits where it is planned; unasked, into half."""
    plan = _or_refused(request)
    assume(plan is not None)
    assert plan is not None
    size = request.bytes(plan.cache, 4 if request.recipe == "notebook" else 1)
    disk = plan.cache == DISK
    free = request.free_disk() if disk else request.free_memory()
    if None not in (free, size) and plan.cache != NONE and not (disk and request.on_disk):
        unasked = request.asked is None and request.recipe == "tfrtool"
        assert size <= (free or 0) * (0.5 if unasked else 0.9)


@given(REQUESTS)
def test_unasked_is_never_refused(request: CacheRequest) -> None:
    """Without a wish of the user's there is always a plan, with a reason on one line."""
    plan = plan_cache(replace(request, asked=None, recipe="tfrtool"))
    assert plan.reason
    assert "\n" not in plan.reason


@pytest.mark.parametrize("name", ["batch_size", "block_length", "parallel_calls", "prefetch"])
def test_numbers_beyond_any_use_are_refused(name: str) -> None:
    """TensorFlow would abort, or fail in words of its own."""
    beyond: Any = {name: 10**20}
    with pytest.raises(UsageError, match="must be from"):
        LoadOptions(image_size=32, **beyond)


# What is free, by files like those of Linux


def _tree(root: Path, **files: str) -> int | None:
    """Return what is free by meminfo, the process's group, and files of groups."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return available_memory(root)


def _group(name: str, limit: object, used: int, inactive: int = 0) -> dict[str, str]:
    return {
        f"sys/fs/cgroup{name}/memory.max": f"{limit}\n",
        f"sys/fs/cgroup{name}/memory.current": f"{used}\n",
        f"sys/fs/cgroup{name}/memory.stat": f"anon 1\ninactive_file {inactive}\nactive_file 5\n",
    }


MEMINFO = {"proc/meminfo": "MemTotal:  99999 kB\nMemAvailable:  1000 kB\n"}
OWN = {"proc/self/cgroup": "9:name=systemd:/x\n0::/a/b\n"}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        (MEMINFO, 1_024_000),
        ({**MEMINFO, **OWN, **_group("/a/b", 5000, 3000, 1000)}, 3000),
        ({**MEMINFO, **OWN, **_group("/a/b", "max", 3000), **_group("/a", 4000, 500)}, 3500),
        ({**MEMINFO, **OWN, **_group("", 4000, 500), **_group("/other", 1, 1)}, 3500),
        ({**OWN, **_group("/a/b", 1000, 1100)}, 0),
        ({**OWN, **_group("/a/b", 1000, 100, 500)}, 1000),
        ({**OWN, **_group("/a", "max", 400), "sys/fs/cgroup/a/memory.high": "1000"}, 600),
        ({**OWN, **_group("", "max", 400)}, None),
        ({"proc/self/cgroup": "0::/../../etc", **_group("", 4000, 500)}, None),
    ],
)
def test_free_memory(files: dict[str, str], free: int | None, tmp_path: Path) -> None:
    """The tightest of the system and all groups around the process decides."""
    assert _tree(tmp_path, **files) == free


@pytest.mark.parametrize("name", ["proc/meminfo", "sys/fs/cgroup/memory.max"])
@pytest.mark.parametrize(
    "text", ["", "\udcff\0", "-5", "1_000", "\u0663", "9" * 5000, "MemAvailable: -1 kB\n:::\nx"]
)
def test_garbage_does_not_count(tmp_path: Path, name: str, text: str) -> None:
    """Whatever one of the files holds, the others still count, and no error comes."""
    files = {**MEMINFO, "proc/self/cgroup": "0::/", **_group("", 500_000, 0)}
    assert _tree(tmp_path, **{**files, name: text}) in (1_024_000, 500_000)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files")
def test_free_space_of_this_machine(tmp_path: Path) -> None:
    """There is a number for memory, and for the disk of a directory that doesn't exist yet."""
    assert (available_memory() or 0) > 10 * 2**20
    free, status = free_disk(tmp_path / "not" / "yet"), os.statvfs(tmp_path)
    assert (
        abs((free or 0) - status.f_frsize * status.f_bavail)
        < status.f_frsize * status.f_blocks / 10
    )
