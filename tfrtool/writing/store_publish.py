"""A dataset in a store: claimed, uploaded shard by shard, and committed by one request.

1. The claim is created if it is absent, which only one writer can; or that of an interrupted write
   is replaced if it is unchanged.
2. What is to be replaced is deleted, its metadata first: from then on, readers see no dataset.
3. Each shard is made in a local folder, read back, uploaded, and noted beside the claim.
4. The metadata is put. Its last object, the commit, is put only if it is absent.
5. The notes are deleted, and the claim at last.

A writer whose claim was taken over ends before its next shard; no clock is compared. Nothing relies
on a listing where asking for an object can tell.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.examples.tfds_metadata import DATASET_INFO, REPORT
from tfrtool.storage.commit import CLAIM, COMMITS, STAGING, has_uncommitted_write
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.storage.signals import signals_wait
from tfrtool.storage.stores import ChangedError
from tfrtool.writing.job_report import FinishedFile, ShardReport
from tfrtool.writing.publish import (
    METADATA,
    Staging,
    Target,
    is_ours,
    is_shard,
    is_shard_of,
    is_whole,
    listed_metadata,
    listed_shards,
    may_write,
    read_object,
)
from tfrtool.writing.run_options import Existing

_AT_ONCE = 8  # requests
_MOST_COPIED = 5 * 2**30  # bytes, by one request of S3's


class StoreStaging(Staging):
    """Files of a job in a store. It can be pickled: any machine may upload and note a file."""

    place: RemotePath

    def __init__(self, root: RemotePath, name: str, folder: Path) -> None:
        """Start without a claim, with a private local folder."""
        super().__init__(folder, resumed=False, left=False)
        self.place, self._name = root, name
        self._claim: str | None = None  # its ETag, while it is there
        self._facts: dict[str, Any] = {}  # its content
        self._begun = self._committed = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "folder": self.place}  # the local one isn't on other machines

    def claim(self, target: Target) -> None:
        """Claim the dataset's folder; the errors are those of `staging_folder`."""
        data, etag = _read(self.place / STAGING / CLAIM)
        before, commits = _object(data), self._commits()
        complete = any(commits.values()) and not has_uncommitted_write(self.place)
        names = {path.name for path in self.place.iterdir()} - {STAGING}
        report = read_object(self.place / REPORT)
        ours = {*METADATA, *listed_metadata(report), *listed_shards(report)}
        if data is not None:
            ours |= {n for n in names if is_shard_of(n, str(before.get("name"))) or _describes(n)}
            ours |= {name for name in map(str, before.get("old") or ()) if _is_ours(name)}
        self.resumed = may_write(
            target, names, ours, interrupted=data is not None, complete=complete
        )
        if target.existing is Existing.RESUME and complete and data is None:
            return  # it is left as it is
        is_fresh = not (names or complete or data is not None)
        indexes = {f"{name}.idx" for name in ours if is_shard(name)}
        self._facts = {
            "writer": secrets.token_hex(16),
            "name": target.name,
            "plan": before.get("plan") if self.resumed else None,
            "commit": before.get("commit") if self.resumed else None,
            "old": [] if is_fresh else sorted(ours | indexes),
        }
        self._put_claim(etag)
        if self._commits() != commits:  # another write has ended just before that claim
            self._release()
            raise _lost(self.place)
        if data is not None:
            abort_uploads(self.place)
        self.left = self.resumed and any(path.name != CLAIM for path in self._notes())

    def begin(self, plan: str, names: Iterable[str]) -> dict[str, FinishedFile]:
        """Delete what is to be replaced; return the files of this plan that are finished."""
        if self._claim is None:
            return {}
        usable = self.resumed and self._facts["plan"] in (None, plan)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            files = threads.map(self._noted, names if usable else ())
            finished = {file.shard.path: file for file in files if file is not None}
        with self._errors():
            self._put_claim(self._claim, plan=plan, commit=None)
            self._begun = True
            if self._facts["old"]:
                old = [name for name in self._facts["old"] if name not in finished]
                for some in (COMMITS, filter(_describes, old), old):  # readers notice by metadata
                    self.place.store.delete([(self.place / name).key for name in some])
                kept = {self.place / STAGING / CLAIM, *map(self._note, finished)}
                self.place.store.delete([path.key for path in self._notes() if path not in kept])
        return finished

    def _noted(self, name: str) -> FinishedFile | None:
        with contextlib.suppress(ValueError):
            file = FinishedFile.from_json(_object(_read(self._note(name))[0]))
            if file.shard.path == name and is_whole(self.place / name, file.shard):
                return file
        return None

    @contextlib.contextmanager
    def scratch_dir(self) -> Iterator[Path]:
        """Give a folder of this machine, whichever that is."""
        with ScratchFolder() as folder:
            yield Path(folder)

    def copy(self, source: AnyPath, name: str) -> str | None:
        """Have the store copy a shard, where it can; return the copy's ETag."""
        if not isinstance(source, RemotePath) or source.store.url != self.place.store.url:
            return None
        goal = self.place / name
        with os_errors_as(WriteError, goal, "can't be copied in the store"):
            if source.known().size > _MOST_COPIED:
                return None
            self._check_claim()
            goal.store.copy(source.key, goal.key)
            return _etag(goal)

    def upload(self, path: Path) -> str | None:
        """Upload a shard, which is gone here then."""
        goal = self.place / path.name
        with os_errors_as(WriteError, goal, "can't be uploaded"):
            self._check_claim()
            etag = goal.store.upload(goal.key, path)
        path.unlink()
        return etag or None

    def note(self, file: FinishedFile) -> None:
        """Note that a file is finished and uploaded."""
        path = self._note(file.shard.path)
        with os_errors_as(WriteError, path, "can't be written"):
            path.store.put(path.key, json.dumps(file.to_json()).encode())

    def publish(
        self, target: Target, shards: Sequence[ShardReport], metadata: Mapping[str, str]
    ) -> None:
        """Commit; `UsageError` if another write was faster."""
        store, commit = self.place.store, DATASET_INFO if DATASET_INFO in metadata else REPORT
        names = [shard.path for shard in shards]
        with self._errors():
            store.delete([path.key for path in self._made() if path.name not in names])
            self._check_claim()
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                places = [self.place / name for name in names]
                whole = [*threads.map(is_whole, places, shards)]
        for name in (name for name, one in zip(names, whole, strict=True) if not one):
            hint = f"run tfrtool {target.command} --resume to write what is missing"
            what = "changed or deleted during the write"
            raise WriteError(what, path=self.place / name, hint=hint)
        with signals_wait(), self._errors():
            self._put_claim(self._claim, commit=commit)
            for name, text in metadata.items():
                if name != commit:
                    store.put((self.place / name).key, text.encode())
            _put(self.place, self.place / commit, metadata[commit].encode(), None)
            self._committed = True
            if _etag(self.place / STAGING / CLAIM) == self._claim:
                self._release(map(self._note, names))

    def end(self, *, keep: bool) -> None:
        """Delete what a write without a commit has made; or ``keep`` it to be resumed."""
        if self._claim is None or self._committed:
            return
        with contextlib.suppress(OSError):
            if keep or _etag(self.place / STAGING / CLAIM) != self._claim:
                return  # or another write has taken over what this one has made
            if self._begun:
                abort_uploads(self.place)
                doomed = self._made()
                doomed += (path for path in self.place.iterdir() if _describes(path.name))
                self.place.store.delete([path.key for path in doomed])
            self._release()

    def _note(self, name: str) -> RemotePath:
        return self.place / STAGING / f"{name}.done.json"

    def _notes(self) -> Iterator[RemotePath]:
        for key, _ in self.place.store.list((self.place / STAGING).key):
            yield self.place / key.removeprefix(self.place.key).lstrip("/")

    def _made(self) -> list[RemotePath]:
        return [path for path in self.place.iterdir() if is_shard_of(path.name, self._name)]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        with os_errors_as(WriteError, self.place, "can't be written"):
            yield

    def _commits(self) -> dict[str, str | None]:
        return {name: _etag(self.place / name) for name in COMMITS}

    def _put_claim(self, etag: str | None, **facts: Any) -> None:
        """Make the claim, or change the one with an ETag; `UsageError` if it is another's."""
        self._facts |= facts
        data = json.dumps(self._facts).encode()
        self._claim = _put(self.place, self.place / STAGING / CLAIM, data, etag)

    def _check_claim(self) -> None:
        if _etag(self.place / STAGING / CLAIM) != self._claim:
            raise _lost(self.place)

    def _release(self, noted: Iterable[RemotePath] = ()) -> None:
        store, claim = self.place.store, self.place / STAGING / CLAIM
        notes = {*self._notes(), *noted} - {claim}  # lists of some stores are late
        store.delete([path.key for path in notes])
        store.delete([claim.key])
        self._claim = None


@contextlib.contextmanager
def store_folder(target: Target, root: RemotePath) -> Iterator[StoreStaging]:
    """Do what `staging_folder` does, for a dataset in a store."""
    with ScratchFolder() as folder:
        staging, failed = StoreStaging(root, target.name, Path(folder)), True
        try:
            with os_errors_as(WriteError, root, "can't be written to"):
                staging.claim(target)
            yield staging
            failed = False
        finally:
            with signals_wait():
                staging.end(keep=failed and staging.resumed)


def abort_uploads(folder: RemotePath) -> None:
    """Abort uploads below a folder of S3's that a killed process has left, if boto3 is installed.

    That these requests are refused, or fail, is no error.
    """
    if not str(folder).startswith("s3://") or find_spec("boto3") is None:
        return
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next(filter(None, map(os.environ.get, variables)), None)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    bucket = folder.parts[0]
    with contextlib.suppress(BotoCoreError, ClientError, ValueError):
        client = boto3.client("s3", endpoint_url=endpoint, region_name=region)
        pages = client.get_paginator("list_multipart_uploads").paginate(
            Bucket=bucket, Prefix=f"{folder.key}/".lstrip("/")
        )
        for one in chain.from_iterable(page.get("Uploads", ()) for page in pages):
            client.abort_multipart_upload(Bucket=bucket, Key=one["Key"], UploadId=one["UploadId"])


def _is_ours(name: str) -> bool:
    return is_ours(name.removesuffix(".idx"))


def _describes(name: str) -> bool:
    return is_ours(name) and not is_shard(name)


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
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


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
