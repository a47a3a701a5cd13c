"""What all tests share: Hypothesis' settings, TensorFlow as an oracle, shards to read."""

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
from tests.quick_children import quick_children
from tests.training.small_base import small_cnn
from tfrtool.records.framing import frame

# A background job may ignore Ctrl-C, and its children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow may be imported by any test first.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# What the system has outlives a process: tests need not wait for the disk. Those processes which
# they start do.
os.fsync = os.fdatasync = lambda fd: None  # noqa: ARG005

settings.register_profile("default", deadline=None, max_examples=10)
settings.register_profile("more", deadline=None, max_examples=100)
settings.register_profile("thorough", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
"""Files that other software wrote; they are next to the repository, not in it."""

MakeShard = Callable[..., Path]
AnyStore = TypeVar("AnyStore", bound=Controlled)

_LONG = ("training", "loading", "process")
"""Folders of tests that take seconds each."""

_REAL = ("process", "engines", "loading", "training", "storage", "fuzz")
"""Folders of tests of what processes do, and of how much time and memory they take."""

_REAL_FILES = ("test_hostile_parquet",)

_FORKED = ("interrupt", "plain_keras", "standard_files", "train")
"""Files of tests of processes that fork commands."""

_STORES = re.compile(
    r"store|remote_shards|local_copies|shard_cache|die_anywhere|predict_command|coco\.|server"
)
"""Files of tests that start emulators of stores, which take seconds."""

_WHOLE_FILE = re.compile(r"^pytestmark = .*pytest\.mark\.tf\b", re.MULTILINE)


def _without_tensorflow(config: pytest.Config) -> bool:
    return "not tf" in str(config.getoption("markexpr"))


def pytest_configure(config: pytest.Config) -> None:
    """Keep TensorFlow out where its tests are left out: a marker that is missing is seen."""
    gc.disable()  # what is collected stays
    if _without_tensorflow(config):
        for name in ("tensorflow", "keras", "tensorflow_datasets"):
            sys.modules[name] = None  # type: ignore[assignment]  # importing it is an error


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't even import files of tests that all need TensorFlow, where they are left out."""
    if not _without_tensorflow(config) or collection_path.suffix != ".py":
        return None
    return True if _WHOLE_FILE.search(collection_path.read_text("utf-8")) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have in one worker what shares a cluster, stores, or a process that forks."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class LoadSharedTogether(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> Any:
            module = nodeid.split("::")[0]
            if module.startswith("tests/engines/"):
                return "cluster"
            if module.startswith("tests/contracts/") and not module.endswith("test_examples.py"):
                return "contracts"  # which read the same source
            if _STORES.search(module):
                return "stores"
            forked = (f"tests/process/test_{name}.py" for name in _FORKED)
            return "forked" if module in forked else module

    return LoadSharedTogether(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what has TensorFlow as its oracle, and begin with what takes long.

    Else one worker waits at the end for the other's last file.
    """
    for item in items:
        if "tf" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.tf)
    items.sort(key=lambda item: item.path.parent.name not in _LONG)


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over what stays: modules, and thousands of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _quick_children(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have processes that start at once, where a test is not about processes."""
    if request.path.parent.name in _REAL or request.path.stem in _REAL_FILES:
        yield
        return
    with quick_children():
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data; skip where there is none."""
    if not (SHARED_DATA / "MANIFEST.md").is_file():
        pytest.skip("the folder of real data (../shared/data) is not here")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tf() -> Any:
    """Return the tensorflow module, which is the oracle for what its formats mean."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow

    return tensorflow


@pytest.fixture(scope="module")
def quick_graphs() -> Iterator[None]:
    """Leave out TensorFlow's optimizer, which takes longer than it saves in a few small steps."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="module")
def quick_cnn() -> Iterator[None]:
    """Have a small cnn where it stands for any model."""
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
    """Return the stores of this session; each is started when it is first asked for."""
    stores = Emulators()
    yield stores
    stores.end()


@pytest.fixture
def bucket(emulators: Emulators, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return an empty bucket of S3's; the environment says where it is."""
    return _ready(emulators.bucket, monkeypatch)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a store refuses be tried again at once."""
    from tfrtool.storage import stores
    from tfrtool.storage.remote import obstore_stores

    pause = timedelta(milliseconds=1)
    retries = {**obstore_stores._RETRIES, "max_retries": 8}
    retries["backoff"] = {"init_backoff": pause, "max_backoff": pause, "base": 2}
    monkeypatch.setattr(obstore_stores, "_RETRIES", retries)
    monkeypatch.setattr(stores, "_PAUSES", (0.001,) * 5)


@pytest.fixture
def google_bucket(emulators: Emulators, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return an empty bucket of Google's; the environment says where it is."""
    return _ready(emulators.google, monkeypatch)


@pytest.fixture
def container(emulators: Emulators, monkeypatch: pytest.MonkeyPatch) -> Container:
    """Return an empty container of Azure's; the environment says where it is."""
    return _ready(emulators.container, monkeypatch)


@pytest.fixture
def website(emulators: Emulators, monkeypatch: pytest.MonkeyPatch) -> Website:
    """Return an empty folder that a web server serves."""
    return _ready(emulators.website, monkeypatch)


@pytest.fixture(params=["s3", "az", "gs"])
def any_bucket(
    request: pytest.FixtureRequest, emulators: Emulators, monkeypatch: pytest.MonkeyPatch
) -> Controlled:
    """Return an empty bucket of each kind of store that can be written to."""
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
