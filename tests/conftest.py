"""Settings and fixtures that all tests share, and how tests are ordered and distributed."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from tests.emulators import (
    Bucket,
    Container,
    Controlled,
    Emulators,
    MissingError,
    Website,
    set_environment,
)
from tests.frames_module import use_frames_module
from tests.more import more
from tests.quick_children import quick_children
from tests.training.small_base import small_cnn
from tfrtool.records.framing import frame

# A background job may ignore Ctrl-C, and its children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

use_frames_module()

# TensorFlow may be imported by any test first.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# Tests need not wait for the disk: written data survives the end of a process. Processes that tests
# start do wait.
os.fsync = os.fdatasync = lambda fd: None  # noqa: ARG005

settings.register_profile("default", deadline=None, max_examples=6)
settings.register_profile("more", deadline=None, max_examples=100)
settings.register_profile("thorough", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
"""A folder of real data next to the repository, which is not distributed."""

MakeShard = Callable[..., Path]
AnyStore = TypeVar("AnyStore", bound=Controlled)

_LONG = ("training", "loading", "process")
"""Folders whose tests take seconds each; they run first."""

_REAL = ("process", "engines", "loading", "training", "storage", "fuzz")
"""Folders whose tests need real child processes, for their behavior, time or memory."""

_REAL_FILES = ("test_hostile_parquet",)
"""Further files of tests that need real child processes."""

_FORKED = ("interrupt", "plain_keras", "replicas", "standard_files", "train")
"""Files in tests/process that share a process which forks commands."""

_STORES = re.compile(
    r"store|remote_shards|local_copies|shard_cache|die_anywhere|predict_command|coco\.|server"
)
"""Files of tests that share the emulators of object stores, whose start takes seconds."""

_WHOLE_FILE = re.compile(r"^pytestmark = .*pytest\.mark\.tf\b", re.MULTILINE)


def _without_tensorflow(config: pytest.Config) -> bool:
    return "not tf" in str(config.getoption("markexpr"))


def pytest_configure(config: pytest.Config) -> None:
    """If tests marked ``tf`` are deselected, make importing TensorFlow an error.

    This finds tests that lack the marker.
    """
    gc.disable()  # collected tests stay in memory
    if _without_tensorflow(config):
        for name in ("tensorflow", "keras", "tensorflow_datasets"):
            sys.modules[name] = None  # type: ignore[assignment]  # importing it is an error


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't import files whose tests are all marked ``tf`` if those are deselected."""
    if not _without_tensorflow(config) or collection_path.suffix != ".py":
        return None
    return True if _WHOLE_FILE.search(collection_path.read_text("utf-8")) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run tests that share a cluster, stores, or a process that forks in the same worker."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class LoadSharedTogether(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> Any:
            module = nodeid.split("::")[0]
            if module.startswith("tests/engines/"):
                return "cluster"
            if module.startswith("tests/rules/"):
                return "rules"  # they read the same sources
            if _STORES.search(module):
                kind = re.search(r"\[(?:.*-)?(az|gs)\b", nodeid)
                return f"store {kind[1] if kind else 's3'}"
            forked = (f"tests/process/test_{name}.py" for name in _FORKED)
            return "forked" if module in forked else module

    return LoadSharedTogether(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the fixture ``tf``, and run long tests first.

    Otherwise, one worker waits at the end for the other's last file.
    """
    for item in items:
        if "tf" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.tf)
    items.sort(key=lambda item: item.path.parent.name not in _LONG)


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from garbage collection, since they stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _quick_children(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make child processes start at once in tests that are not about processes."""
    if request.path.parent.name in _REAL or request.path.stem in _REAL_FILES:
        yield
        return
    with quick_children():
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data; skip the test if it does not exist."""
    if not (SHARED_DATA / "MANIFEST.md").is_file():
        pytest.skip("needs ../shared/data, a folder of real data that is not distributed")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tf() -> Any:
    """Return the tensorflow module, to compare tfrtool's results with TensorFlow's."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow

    return tensorflow


@pytest.fixture(scope="module")
def quick_graphs() -> Iterator[None]:
    """Disable TensorFlow's graph optimizer: for a few small steps, it costs more than it saves."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="module")
def quick_cnn() -> Iterator[None]:
    """Replace the cnn with a small one, for tests in which any model will do."""
    with small_cnn():
        yield


@pytest.fixture
def make_shard(tmp_path: Path) -> MakeShard:
    """Return a function that writes payloads as a shard, and returns its path."""

    def make(payloads: Iterable[bytes], name: str = "a.tfrecord") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(frame, payloads)))
        return path

    return make


@pytest.fixture(scope="session")
def emulators() -> Iterator[Emulators]:
    """Return the emulated stores of this session; each is started at its first use."""
    stores = Emulators()
    yield stores
    stores.end()


@pytest.fixture
def bucket(emulators: Emulators, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return an empty emulated S3 bucket; environment variables name its address."""
    return _ready(emulators.bucket, monkeypatch)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses before requests to a store are retried."""
    from tfrtool.storage import stores
    from tfrtool.storage.remote import obstore_stores

    pause = timedelta(milliseconds=1)
    retries = {**obstore_stores._RETRIES, "max_retries": 8}
    retries["backoff"] = {"init_backoff": pause, "max_backoff": pause, "base": 2}
    monkeypatch.setattr(obstore_stores, "_RETRIES", retries)
    monkeypatch.setattr(stores, "_PAUSES", (0.001,) * 5)


@pytest.fixture
def google_bucket(emulators: Emulators, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return an empty emulated Google bucket; environment variables name its address."""
    return _ready(emulators.google, monkeypatch)


@pytest.fixture
def container(emulators: Emulators, monkeypatch: pytest.MonkeyPatch) -> Container:
    """Return an empty emulated Azure container; environment variables name its address."""
    return _ready(emulators.container, monkeypatch)


@pytest.fixture
def website(emulators: Emulators, monkeypatch: pytest.MonkeyPatch) -> Website:
    """Return an empty folder that a web server serves."""
    return _ready(emulators.website, monkeypatch)


@pytest.fixture(params=["s3", more("az"), more("gs")])
def any_bucket(
    request: pytest.FixtureRequest, emulators: Emulators, monkeypatch: pytest.MonkeyPatch
) -> Controlled:
    """Return an empty bucket of S3, Azure or Google: the test runs once for each."""
    makers: dict[str, Callable[[], Controlled]] = {
        "s3": emulators.bucket,
        "az": emulators.container,
        "gs": emulators.google,
    }
    return _ready(makers[request.param], monkeypatch)


def _ready(make: Callable[[], AnyStore], monkeypatch: pytest.MonkeyPatch) -> AnyStore:
    try:
        store = make()
    except MissingError as error:
        pytest.skip(str(error))
    set_environment(store.environment, monkeypatch)
    return store


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command, and returns its exit code, output and errors."""
    from tfrtool.cli import main

    def run_it(*words: str | Path) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run_it
