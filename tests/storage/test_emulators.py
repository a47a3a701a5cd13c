"""The stores of the tests themselves: they count, and misbehave as they are told."""

from __future__ import annotations

from datetime import timedelta

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import GCSStore, S3Store

from tests.emulators import Bucket, Misbehaviour

HURRY = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=5),
    "backoff": {
        "init_backoff": timedelta(milliseconds=10),
        "max_backoff": timedelta(milliseconds=50),
        "base": 2,
    },
}


def _store(bucket: Bucket) -> S3Store:
    return S3Store(bucket.name, retry_config=HURRY)  # type: ignore[arg-type]


def test_counts(bucket: Bucket) -> None:
    """Requests and the bytes of bodies are counted, each way; boto3's own are not."""
    bucket.put("a/b.bin", bytes(1000))
    store = _store(bucket)
    assert bytes(obstore.get_range(store, "a/b.bin", start=100, length=50)) == bytes(50)
    obstore.put(store, "c", b"x" * 300, use_multipart=False)
    assert bucket.requests() == {"GET": 1, "PUT": 1}
    assert (bucket.down(), bucket.up()) == (50, 300)
    assert bucket.log()[0]["range"] == "bytes=100-149"
    bucket.forget()
    assert bucket.log() == []
    assert bucket.names() == ["a/b.bin", "c"]


def test_puts_on_conditions(bucket: Bucket) -> None:
    """A second creation is refused, and so is replacing what has changed."""
    store = _store(bucket)
    first = obstore.put(store, "a", b"1", mode="create", use_multipart=False)
    with pytest.raises(BaseError):
        obstore.put(store, "a", b"2", mode="create", use_multipart=False)
    obstore.put(store, "a", b"3", mode={"e_tag": first["e_tag"]}, use_multipart=False)
    with pytest.raises(PreconditionError):
        obstore.put(store, "a", b"4", mode={"e_tag": first["e_tag"]}, use_multipart=False)
    assert bucket.get("a") == b"3"


def test_cuts_bodies(bucket: Bucket) -> None:
    """A body that is cut short is shorter than said, whatever its client makes of it."""
    bucket.put("a", bytes(200_000))
    bucket.misbehave(Misbehaviour(first=1, cut_after=1000))
    assert len(bytes(obstore.get(_store(bucket), "a").bytes())) == 200_000
    assert bucket.log()[0]["down"] == 1000


def test_loses_answers(bucket: Bucket) -> None:
    """A put is done whose answer is lost: trying again, its creator finds that it is there."""
    bucket.misbehave(Misbehaviour(methods=("PUT",), first=1, lose_answer=True))
    store = _store(bucket)
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a", b"1", mode="create", use_multipart=False)
    assert [entry["status"] for entry in bucket.log()] == [200, 412]


def test_lists_late(bucket: Bucket) -> None:
    """What has just been put is not listed, though it can be read."""
    store = _store(bucket)
    obstore.put(store, "new name", b"1", use_multipart=False)
    bucket.put("old", b"1")
    bucket.misbehave(Misbehaviour(hide_for=60))
    listed = [entry["path"] for entry in obstore.list(store).collect()]
    assert listed == ["old"]
    assert bytes(obstore.get(store, "new name").bytes()) == b"1"


def test_google(google_bucket: Bucket) -> None:
    """Google's store answers: ranges, lists, conditions on generations, parts, copies."""
    store = GCSStore(google_bucket.name, retry_config=HURRY)  # type: ignore[arg-type]
    first = obstore.put(store, "a", bytes(range(100)), mode="create", use_multipart=False)
    with pytest.raises(BaseError):
        obstore.put(store, "a", b"2", mode="create", use_multipart=False)
    assert bytes(obstore.get_range(store, "a", start=10, length=3)) == bytes([10, 11, 12])
    assert obstore.head(store, "a")["size"] == 100
    obstore.put(store, "a", b"3", mode=dict(first), use_multipart=False)  # type: ignore[arg-type]
    with pytest.raises(PreconditionError):
        obstore.put(store, "a", b"4", mode=dict(first), use_multipart=False)  # type: ignore[arg-type]
    obstore.put(store, "b/c", bytes(12 << 20), use_multipart=True, chunk_size=6 << 20)
    obstore.copy(store, "a", "b/d")
    assert google_bucket.get("b/d") == b"3"
    obstore.delete(store, "a")
    assert sorted(entry["path"] for entry in obstore.list(store).collect()) == ["b/c", "b/d"]
    assert google_bucket.requests()["HEAD"] == 1
