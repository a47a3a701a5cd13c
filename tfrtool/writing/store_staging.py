"""How a dataset appears in a store: claimed, uploaded, committed.

docs/stores.md has the steps, from the claim to the commit. A writer whose claim was
taken over ends before its next shard; no clock is compared. Nothing relies on a listing where a
request for an object is enough.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.examples.tfds_metadata import DATASET_INFO, REPORT
from tfrtool.records.count import INDEX
from tfrtool.storage.commit import CLAIM, COMMITS, STAGING, has_uncommitted_write
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.lock import signals_wait
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.storage.stores import ChangedError
from tfrtool.writing.job_report import FinishedFile, ShardReport
from tfrtool.writing.publish import (
    AT_ONCE,
    Staging,
    is_metadata,
    is_ours,
    is_shard_of,
    is_whole,
    names_of_ours,
    with_indexes,
)
from tfrtool.writing.run_options import Existing, JobSettings

_MOST_COPIED = 5 * 2**30  # bytes, by one request of S3's


class StoreStaging(Staging):
    """Files of a job in a store. It can be pickled: any machine may upload a file."""

    target: RemotePath
    notes: RemotePath

    def __init__(self, settings: JobSettings, root: RemotePath, folder: Path) -> None:
        super().__init__(settings, folder, root, root / STAGING)
        self._claim: str | None = None  # its ETag, while it is there
        self._begun = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "folder": self.target}  # the local one isn't elsewhere

    def claim(self) -> None:
        """Claim the dataset's folder; the errors are those of `stage_in_folder`."""
        data, etag = _read(self.notes / CLAIM)
        before, commits = _object(data), self._commits()
        complete = any(commits.values()) and not has_uncommitted_write(self.target)
        names = {path.name for path in self.target.iterdir()} - {STAGING}
        owned = names_of_ours(self.target)
        if data is not None:
            name = str(before.get("name"))
            owned |= {
                n for n in names if is_shard_of(n.removesuffix(INDEX), name) or is_metadata(n)
            }
            listed = map(str, before.get("old") or ())
            owned |= {*filter(is_ours, listed)}
        self._may_write(names, owned, interrupted=data is not None, complete=complete)
        if self.settings.existing is Existing.RESUME and complete and data is None:
            return  # it is left as it is
        is_fresh = not (names or complete or data is not None)
        self._facts = {
            "writer": secrets.token_hex(16),
            "name": self.settings.name,
            "plan": before.get("plan") if self.resumed else None,
            "commit": before.get("commit") if self.resumed else None,
            "old": [] if is_fresh else sorted(with_indexes(owned)),
        }
        self._put_claim(etag)
        if self._commits() != commits:  # another write has ended just before that claim
            self._release()
            raise _lost(self.target)
        if data is not None:
            abort_uploads(self.target, {self.settings.name, str(before.get("name"))})
        self.left = self.resumed and any(path.name != CLAIM for path in self._listed_notes())

    def begin(self, plan: str, names: Iterable[str]) -> dict[str, FinishedFile]:
        """Do what `Staging.begin` does, unless a complete dataset is left as it is."""
        return {} if self._claim is None else super().begin(plan, names)

    def _begin(self, plan: str, finished: Mapping[str, FinishedFile]) -> None:
        store = self.target.store
        with self._errors():
            self._put_claim(self._claim, plan=plan, commit=None)
            self._begun = True
            if self._facts["old"]:
                old = [n for n in self._facts["old"] if n.removesuffix(INDEX) not in finished]
                for doomed in (
                    COMMITS,
                    filter(is_metadata, old),
                    old,
                ):  # readers notice by metadata
                    store.delete([(self.target / name).key for name in doomed])
                retained = {self.notes / CLAIM, *map(self._note, finished)}
                store.delete([path.key for path in self._listed_notes() if path not in retained])

    @contextlib.contextmanager
    def scratch_dir(self) -> Iterator[Path]:
        """Give a folder of this machine, whichever that is."""
        with ScratchFolder() as folder:
            yield Path(folder)

    def copy(self, source: AnyPath, name: str) -> str | None:
        """Have the store copy a shard, where it can; return the copy's ETag."""
        if not isinstance(source, RemotePath) or source.store.url != self.target.store.url:
            return None
        shard_path = self.target / name
        with os_errors_as(WriteError, shard_path, "can't be copied in the store"):
            if source.known().size > _MOST_COPIED:
                return None
            self._check_claim()
            shard_path.store.copy(source.key, shard_path.key)
            return _etag(shard_path)

    def finish(self, path: Path) -> str | None:
        """Upload a shard, which is gone here then."""
        shard_path = self.target / path.name
        with os_errors_as(WriteError, shard_path, "can't be uploaded"):
            self._check_claim()
            etag = shard_path.store.upload(shard_path.key, path)
        path.unlink()
        return etag or None

    def publish(self, shards: Sequence[ShardReport], metadata: Mapping[str, str]) -> None:
        """Commit."""
        store, commit = self.target.store, DATASET_INFO if DATASET_INFO in metadata else REPORT
        names = [shard.path for shard in shards]
        known = {*chain.from_iterable(shard.names for shard in shards)}
        with self._errors():
            store.delete([path.key for path in self._written_shards() if path.name not in known])
            self._check_claim()
            with ThreadPoolExecutor(AT_ONCE) as threads:
                intact = [*threads.map(is_whole, [self.target / name for name in names], shards)]
        for name in (name for name, one in zip(names, intact, strict=True) if not one):
            hint = f"run tfrtool {self.settings.command} --resume to write what is missing"
            what = "changed or deleted during the write"
            raise WriteError(what, path=self.target / name, hint=hint)
        with signals_wait(), self._errors():
            self._put_claim(self._claim, commit=commit)
            for name, text in metadata.items():
                if name != commit:
                    store.put((self.target / name).key, text.encode())
            _put(self.target, self.target / commit, metadata[commit].encode(), None)
            self.published = True
            if _etag(self.notes / CLAIM) == self._claim:
                self._release(map(self._note, names))

    def end(self, *, keep: bool) -> None:
        """Delete what a write without a commit has made; or ``keep`` it to be resumed."""
        if self._claim is None or self.published:
            return
        with contextlib.suppress(OSError):
            if keep or _etag(self.notes / CLAIM) != self._claim:
                return  # or another write has taken over what this one has made
            if self._begun:
                abort_uploads(self.target, {self.settings.name})
                doomed = self._written_shards()
                doomed += (path for path in self.target.iterdir() if is_metadata(path.name))
                self.target.store.delete([path.key for path in doomed])
            self._release()

    def _listed_notes(self) -> Iterator[RemotePath]:
        for key, _ in self.target.store.list(self.notes.key):
            yield self.target / key.removeprefix(self.target.key).lstrip("/")

    def _written_shards(self) -> list[RemotePath]:
        name = self.settings.name
        return [
            path
            for path in self.target.iterdir()
            if is_shard_of(path.name.removesuffix(INDEX), name)
        ]

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return os_errors_as(WriteError, self.target, "can't be written")

    def _commits(self) -> dict[str, str | None]:
        return {name: _etag(self.target / name) for name in COMMITS}

    def _put_claim(self, etag: str | None, **facts: Any) -> None:
        """Make the claim, or change the one with an ETag; `UsageError` if it is another's."""
        self._facts |= facts
        data = json.dumps(self._facts).encode()
        self._claim = _put(self.target, self.notes / CLAIM, data, etag)

    def _check_claim(self) -> None:
        if _etag(self.notes / CLAIM) != self._claim:
            raise _lost(self.target)

    def _release(self, noted: Iterable[AnyPath] = ()) -> None:
        store, claim = self.target.store, self.notes / CLAIM
        listed = {path.key for path in self._listed_notes()}
        listed |= {path.key for path in noted if isinstance(path, RemotePath)}
        store.delete([*(listed - {claim.key})])  # lists of some stores are late
        store.delete([claim.key])
        self._claim = None


@contextlib.contextmanager
def stage_in_store(settings: JobSettings, root: RemotePath) -> Iterator[StoreStaging]:
    """Claim a folder of a store, and give a place for its files, as `stage_in_folder` does."""
    with ScratchFolder() as folder:
        staged, failed = StoreStaging(settings, root, Path(folder)), True
        try:
            with os_errors_as(WriteError, root, "can't be written to"):
                staged.claim()
            with staged.noting_interrupt():
                yield staged
            failed = False
        finally:
            with signals_wait():
                staged.end(keep=failed and staged.resumed)


def abort_uploads(folder: RemotePath, names: Collection[str]) -> None:
    """Abort uploads of shards of these datasets that a killed process has left in a folder of S3.

    Others may upload something else to the same folder. Without boto3, nothing is done. That these
    requests are refused, or fail, is no error.
    """
    if not str(folder).startswith("s3://") or find_spec("boto3") is None:
        return
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next(filter(None, map(os.environ.get, variables)), None)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    bucket, prefix = folder.parts[0], f"{folder.key}/".lstrip("/")
    with contextlib.suppress(BotoCoreError, ClientError, ValueError):
        client = boto3.client("s3", endpoint_url=endpoint, region_name=region)
        pages = client.get_paginator("list_multipart_uploads").paginate(
            Bucket=bucket, Prefix=prefix
        )
        for one in chain.from_iterable(page.get("Uploads", ()) for page in pages):
            shard = one["Key"].removeprefix(prefix).removesuffix(INDEX)
            if "/" not in shard and any(is_shard_of(shard, name) for name in names):
                key, upload = one["Key"], one["UploadId"]
                client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


def _read(path: RemotePath) -> tuple[bytes | None, str | None]:
    """Return a small object and its ETag; None if it isn't there."""
    try:
        data, status = path.store.get(path.key, 0, MAX_METADATA_BYTES)
    except FileNotFoundError:
        return None, None
    return data, status.etag


def _etag(path: RemotePath) -> str | None:
    try:
        return path.store.head(path.key).etag
    except FileNotFoundError:
        return None


def _object(data: bytes | None) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(data or b"")
        return found if isinstance(found, dict) else {}
    return {}


def _put(root: RemotePath, path: RemotePath, data: bytes, etag: str | None) -> str:
    """Put an object in place of the one with an ETag, or of none; return its own.

    `UsageError` if another one is there, unless it is the same, as after a lost answer to a
    request that was repeated. `WriteError` if the store refuses a condition that holds.
    """
    try:
        return path.store.put(path.key, data, only_new=etag is None, replacing=etag)
    except (FileExistsError, FileNotFoundError, ChangedError):
        found, now = _read(path)
        if found == data and now is not None:
            return now
        if now is None or now != etag:
            raise _lost(root) from None
        raise WriteError(
            "the store does not support conditional writes (If-Match), like older Ceph gateways",
            path=root,
            hint="write to a local folder and copy it to the store",
        ) from None


def _lost(root: RemotePath) -> UsageError:
    return UsageError(
        "another write started or finished here meanwhile, and was left untouched",
        path=root,
        hint="wait for it to finish; --overwrite would replace it",
    )
