"""Writes to stores that fail, or meet another: what is left, and who wins."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.emulators import Bucket, Misbehaviour
from tests.stored import PREFIX, local_digests, steps, stored_digests
from tfrtool.cli import main
from tfrtool.errors import DatasetError, TfrtoolError, UsageError, WriteError

FIRST, SECOND = 6, 4
"""Records of the two sources."""

STEPS = range(20)
"""More requests than a write of a shard makes that change something."""

ALL = 8
"""No more than it makes."""

AFTER_A_SHARD = 4
"""Requests that make a claim, set its plan, and upload and note a shard."""

Do = Callable[[], Any]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two sources."""
    root = tmp_path_factory.mktemp("sources")
    return [
        write_foreign(root / str(count), [[image_payload(n) for n in range(count)]])
        for count in (FIRST, SECOND)
    ]


@pytest.fixture
def url(bucket: Bucket) -> str:
    """Return where a dataset may be written."""
    return f"{bucket.url}/{PREFIX}"


def _write(source: Path, to: Any, existing: str = "refuse", shards: int = 1) -> Any:
    named: dict[str, Any] = {"name": "cats", "version": "1.0.0"}
    return tfrtool.reshard(source, to, shards=shards, existing=existing, **named)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Return the digests of the files of a local write of each source."""
    root = tmp_path_factory.mktemp("whole")
    for number, source in enumerate(sources):
        _write(source, root / str(number))
    return [local_digests(root / str(number)) for number in range(2)]


def _stopped(at: int, run: Do, error: BaseException) -> bool:
    """Run, and raise before the request of a number; return whether there was one."""
    met = []

    def stop(number: int, *_: str) -> None:
        if number == at:
            met.append(number)
            raise error

    with steps(stop):
        try:
            run()
        except (KeyboardInterrupt, TfrtoolError):
            assert met
    return bool(met)


def _cut_off(bucket: Bucket, run: Do) -> None:
    """Run until a shard is noted; from then on the store refuses all changes."""
    rule = Misbehaviour(methods=("PUT", "POST", "DELETE"), after=AFTER_A_SHARD, status=403)
    bucket.misbehave(rule)
    with pytest.raises(TfrtoolError):
        run()
    bucket.misbehave()


def _clear(bucket: Bucket) -> None:
    if keys := [{"Key": key} for key in bucket.names()]:
        bucket.client.delete_objects(Bucket=bucket.name, Delete={"Objects": keys})


def test_another_plan_starts_over(
    bucket: Bucket, url: str, sources: list[Path], whole: list[dict[str, str]]
) -> None:
    """Who resumes with other records keeps nothing of the first write."""
    _cut_off(bucket, lambda: _write(sources[0], url))
    report = _write(sources[1], url, "resume")
    assert report.resumed == 0
    assert "interrupted run" in report.warnings[0]
    assert stored_digests(bucket) == whole[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "error"), [(None, KeyboardInterrupt()), (0, OSError(5, "no more of this"))]
)
def test_an_error_leaves_what_was_there(
    old: int | None,
    error: BaseException,
    bucket: Bucket,
    url: str,
    sources: list[Path],
    whole: list[dict[str, str]],
) -> None:
    """Nothing; or, before it is replaced, the old dataset; or, once committed, the new one."""
    for at in STEPS[old is not None :: 2]:  # the others are alike
        _clear(bucket)
        if old is not None:
            _write(sources[old], url)
        if not _stopped(at, lambda: _write(sources[1], url, "overwrite"), error):
            break
        if len(bucket.names()) != 0:
            records = sum(map(tfrtool.count, tfrtool.find_shards(url)))
            assert records in (FIRST, SECOND)
            if records == FIRST:
                assert stored_digests(bucket) == whole[0]
        assert bucket.uploads() == []
    assert at >= ALL


def test_a_complete_one_is_left_as_it_is(bucket: Bucket, url: str, sources: list[Path]) -> None:
    """Resuming it changes nothing; with other records it is refused, and what is foreign stays."""
    _write(sources[0], url)
    with steps(lambda *_: pytest.fail("something is changed")):
        assert _write(sources[0], url, "resume").complete
        with pytest.raises(UsageError, match=r"already complete.*other options"):
            _write(sources[1], url, "resume")
        with pytest.raises(UsageError, match="already exists"):
            _write(sources[1], url)
    shard = next(key for key in [*bucket.names()] if key.endswith("-of-00001"))
    bucket.put(shard, bucket.get(shard)[:-1] + b"?")
    with pytest.raises(UsageError, match="changed since it was written"):
        _write(sources[0], url, "resume")
    bucket.put(f"{PREFIX}/cats-train.tfrecord-00007-of-00009", b"")
    with pytest.raises(UsageError, match="did not write"):
        _write(sources[0], url, "overwrite")


def test_a_shard_that_changed_meanwhile_is_no_part_of_a_dataset(
    bucket: Bucket, url: str, sources: list[Path]
) -> None:
    """Each is asked for before the commit."""

    def damage(_: int, name: str, key: str) -> None:
        if name == "put" and key.endswith("00000-of-00001.done.json"):
            bucket.put(f"{PREFIX}/cats-train.tfrecord-00000-of-00001", b"another's")

    with steps(damage), pytest.raises(WriteError, match="during the write"):
        _write(sources[0], url)
    assert bucket.names() == []


def _beside(at: int, run: Do, other: Do) -> tuple[bool, Any]:
    """Run, and do something else before the request of a number; return what that returned."""
    done: list[Any] = []

    def both(number: int, *_: str) -> None:
        if number == at and not done:
            done.append(None)
            done.append(other())

    with steps(both), contextlib.suppress(UsageError):
        run()
        return False, done[-1] if done else None
    return True, done[-1]


def test_of_two_fresh_writes_one_wins(
    bucket: Bucket, url: str, sources: list[Path], whole: list[dict[str, str]]
) -> None:
    """The one that claims first; the other says so, and changes nothing."""
    lost, _ = _beside(0, lambda: _write(sources[0], url), lambda: _write(sources[1], url))
    assert lost
    assert stored_digests(bucket) == whole[1]
    _clear(bucket)

    def refused() -> Any:
        with pytest.raises(UsageError, match="or running write"):
            _write(sources[1], url)

    lost, _ = _beside(3, lambda: _write(sources[0], url), refused)
    assert not lost
    assert stored_digests(bucket) == whole[0]


@pytest.mark.parametrize("second", [0, 1])
@pytest.mark.parametrize("existing", ["resume", "overwrite"])
def test_the_one_that_takes_over_wins(
    existing: str,
    second: int,
    bucket: Bucket,
    url: str,
    sources: list[Path],
    whole: list[dict[str, str]],
) -> None:
    """Another one takes the claim while a shard is noted: its dataset is there in the end."""
    done: list[Any] = []

    def take_over(_: int, name: str, key: str) -> None:
        if name == "put" and key.endswith(".done.json") and not done:
            done.append(None)
            done.append(_write(sources[second], url, existing))

    with steps(take_over), pytest.raises(UsageError, match="another write"):
        _write(sources[0], url)
    assert len(done) == 2
    bucket.client.delete_object(
        Bucket=bucket.name,
        Key=f"{PREFIX}/.tfrtool-incomplete/cats-train.tfrecord-00000-of-00001.done.json",
    )
    assert stored_digests(bucket) == whole[second]


def test_a_lost_answer_is_no_other_writer(
    bucket: Bucket, url: str, sources: list[Path], whole: list[dict[str, str]]
) -> None:
    """A claim or commit that was made and is asked for again is one's own."""
    for name in ("claim.json", "dataset_info.json"):
        _clear(bucket)
        bucket.misbehave(Misbehaviour(methods=("PUT",), matching=name, first=1, lose_answer=True))
        _write(sources[0], url)
        assert stored_digests(bucket) == whole[0]


def test_late_listings_decide_nothing(bucket: Bucket, url: str, sources: list[Path]) -> None:
    """What was put but isn't listed is found all the same."""
    _cut_off(bucket, lambda: _write(sources[0], url))
    bucket.misbehave(Misbehaviour(methods=("GET",), hide_for=60))
    with pytest.raises(UsageError, match="interrupted or running write"):
        _write(sources[0], url)
    assert _write(sources[0], url, "resume").resumed == 1
    with pytest.raises(UsageError, match="already exists"):
        _write(sources[0], url)
    _write(sources[1], url, "overwrite")
    assert _write(sources[1], url, "resume").complete
    bucket.misbehave()
    assert sum(map(tfrtool.count, tfrtool.find_shards(url))) == SECOND


_KILLED = """
import os, signal, sys
import tfrtool
from tfrtool.storage.stores import Store

real = Store.upload

def die(self, key, path):
    if "00001-of" in key:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, key, path)

Store.upload = die
tfrtool.reshard(sys.argv[1], sys.argv[2], shards=2, name="cats", version="1.0.0")
"""


def test_sigkill(bucket: Bucket, url: str, sources: list[Path]) -> None:
    """A process is killed: the shards that it noted stay, and uploads of its are aborted."""
    words = [sys.executable, "-c", _KILLED, str(sources[0]), url]
    died = subprocess.run(words, env=os.environ | bucket.environment, check=False, timeout=300)
    assert died.returncode == -signal.SIGKILL
    key = f"{PREFIX}/cats-train.tfrecord-00001-of-00002"
    bucket.client.create_multipart_upload(Bucket=bucket.name, Key=key)
    others = [f"{PREFIX}/another.zip", f"{PREFIX}/below/{key.rpartition('/')[2]}"]
    others.append("cats/1.0.00/another")
    for other in others:  # of other programs
        bucket.client.create_multipart_upload(Bucket=bucket.name, Key=other)
    with pytest.raises(DatasetError, match="is still running"):
        tfrtool.find_shards(url)
    report = _write(sources[0], url, "resume", 2)
    assert report.resumed == 1
    assert sum(map(tfrtool.count, tfrtool.find_shards(url))) == FIRST
    assert bucket.uploads() == others


def test_a_failed_upload_leaves_no_parts(
    bucket: Bucket, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun is aborted; the message names the object, and holds no secret."""
    monkeypatch.setattr("tfrtool.writing.store_staging.find_spec", lambda _: None)
    source = write_foreign(tmp_path / "large", [[os.urandom(20 << 20)]])
    bucket.misbehave(
        Misbehaviour(methods=("PUT",), matching="partNumber=2", status=403, code="AccessDenied")
    )
    with pytest.raises(WriteError, match="can't be uploaded") as raised:
        _write(source, url, shards=1)
    assert raised.value.path == f"{url}/cats-train.tfrecord-00000-of-00001"
    assert bucket.names() == bucket.uploads() == []


def test_the_command_line(url: str, sources: list[Path]) -> None:
    """Exit codes are those of local targets."""
    words = ["reshard", str(sources[0]), url, "--shards", "1"]
    assert main(words) == 0
    assert main(words) == 2
    assert main([*words, "--resume"]) == 0
    assert main([*words, "--overwrite"]) == 0
    assert main(["count", url]) == 0
