"""A dataset in a store: claimed, uploaded shard by shard, and committed by one request.

1. The claim is made, which only one writer can; or that of an interrupted write is taken over.
2. Each shard is made in a folder of this machine, read back, uploaded to where it will stay, and
   noted beside the claim.
3. The metadata is put. Its last object, the commit, is put only if it is not there yet; or, of a
   dataset that replaces another, only if it is what it was when the write began.
4. What is replaced is deleted, then the notes, and the claim at last.

A fresh dataset lies in its folder as on a disk. One that comes in place of others, or of another
write's that may still be running, lies in a folder of its own, so that no two writers ever put
different bytes under one key. A writer whose claim was taken over ends before its next shard; no
clock is compared. Nothing relies on a listing where asking for an object can tell.
"""

import contextlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, human_bytes, os_errors_as
from tfrtool.examples.tfds_metadata import DATASET_INFO, REPORT
from tfrtool.storage.commit import (
    CLAIM,
    COMMITS,
    STAGING,
    VERSION_FOLDER,
    current_folder,
    has_uncommitted_write,
    version_folder,
)
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.remote.uploads import abort_uploads
from tfrtool.storage.remote_path import RemotePath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.storage.signals import signals_wait
from tfrtool.storage.stores import ChangedError
from tfrtool.writing.job_report import FinishedFile, ShardReport, json_text
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
from tfrtool.writing.write_options import Existing

_AT_ONCE = 8  # requests
_MOST_COPIED = 5 * 2**30  # bytes, by one request of S3's
_FLAT = "flat"  # where notes are of shards without a folder of their own


class StoreStaging(Staging):
    """Files of a job in a store. It can be pickled: any machine may upload and note a file."""

    place: RemotePath

    def __init__(self, root: RemotePath, name: str, folder: Path) -> None:
        """Start without a claim.

        Args:
            root: the dataset's folder.
            name: the dataset's name.
            folder: a private folder of this machine.
        """
        super().__init__(folder, resumed=False, left=False)
        self.place = self._root = root
        self._name = name
        self._claim: str | None = None  # its ETag, while it is there
        self._facts: dict[str, Any] = {}  # its content
        self._committed = False
        self._before: dict[str, str | None] = {}  # the ETags of what may be the commit
        self._put: dict[RemotePath, str] = {}  # the ETags of the metadata

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "folder": self.place}  # the local one isn't on other machines

    def claim(self, target: Target) -> None:
        """Claim the dataset's folder; the errors are those of `staging_folder`."""
        data, etag = _read(self._root / STAGING / CLAIM)
        before = _object(data)
        self._before = self._commits()
        current = current_folder(self._root)
        complete = any(self._before.values()) and not has_uncommitted_write(self._root)
        commit = next((name for name in COMMITS if name == before.get("commit")), None)
        folder = str(before.get("folder"))
        own = self._root / (folder if VERSION_FOLDER.fullmatch(folder) else "")
        committed = complete and own == current and commit and self._before[commit] is not None
        interrupted = data is not None and not committed
        names = {path.name for path in self._root.iterdir()} - {STAGING}
        reports = read_object(self._root / REPORT), read_object(current / REPORT)
        ours = {*METADATA, *listed_metadata(reports[1]), *listed_shards(reports[0])}
        ours |= {name for name in map(str, before.get("old") or ()) if _is_ours(name)}
        if data is not None and not complete:  # the folder was empty
            ours |= {n for n in names if is_shard_of(n, str(before.get("name"))) or _describes(n)}
        folders = {name for name in names if VERSION_FOLDER.fullmatch(name)}
        self.resumed = may_write(
            target, names, ours | folders, interrupted=interrupted, complete=complete
        )
        resume = target.existing is Existing.RESUME
        tidies = resume and committed and data is not None
        if resume and complete and not interrupted and not tidies:
            return  # it is left as it is
        if self.resumed or tidies:
            self.place = own
        elif names or complete or data is not None:
            self.place = self._root / version_folder()
        indexes = {f"{name}.idx" for name in ours if is_shard(name)}
        self._facts = {
            "writer": secrets.token_hex(16),
            "name": target.name,
            "folder": self._folder,
            "plan": before.get("plan") if self.resumed else None,
            "commit": commit,
            "old": sorted((ours | indexes) & names | folders),
        }
        self._put_claim(etag)
        if self._commits() != self._before:  # another write has ended just before that claim
            self._release()
            raise _lost(self._root)
        if data is not None:
            abort_uploads(self._root)
        self.left = self.resumed and any(path.name != CLAIM for path in self._notes())
        if tidies:
            new = {*listed_shards(reports[1]), *listed_metadata(reports[1])}
            self._tidy([name for name in new if (self.place / name).is_file()])

    def begin(self, plan: str, names: Iterable[str]) -> dict[str, FinishedFile]:
        """Say what is going to be written; what has another plan goes into a folder of its own."""
        if self._claim is None:
            return {}
        usable = self.resumed and self._facts["plan"] in (None, plan)
        if self.resumed and not usable:
            self.place = self._root / version_folder()
        with self._errors():
            self._put_claim(self._claim, plan=plan, folder=self._folder)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            files = threads.map(self._noted, names if usable else ())
            return {file.shard.path: file for file in files if file is not None}

    def _noted(self, name: str) -> FinishedFile | None:
        with contextlib.suppress(ValueError):
            file = FinishedFile.from_json(_object(_read(self._note(name))[0]))
            if file.shard.path == name and is_whole(self.place / name, file.shard):
                return file
        return None

    def check_space(self, needed: Callable[[], int]) -> None:
        """Raise a `WriteError` if the folder for temporary files can't take so many bytes."""
        free, size = shutil.disk_usage(self.folder).free, needed()
        if free < size:
            raise WriteError(
                "not enough free space for temporary files",
                path=self.folder.parent,
                expected=human_bytes(size),
                found=human_bytes(free),
                hint="set TMPDIR to a folder on a larger disk",
            )

    @contextlib.contextmanager
    def scratch_dir(self) -> Iterator[Path]:
        """Give a folder of this machine, whichever that is."""
        with ScratchFolder() as folder:
            yield Path(folder)

    def copy(self, source: Path, name: str) -> str | None:
        """Have the store copy a shard, where it can; return the copy's ETag."""
        if not isinstance(source, RemotePath) or source.store.url != self._root.store.url:
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
        store = self._root.store
        commit = DATASET_INFO if DATASET_INFO in metadata else REPORT
        names = [shard.path for shard in shards]
        with self._errors():
            store.delete([path.key for path in self._made() if path.name not in names])
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                places = [self.place / name for name in names]
                whole = [*threads.map(is_whole, places, shards)]
            if not all(whole):
                self._check_claim()
        for name in (name for name, one in zip(names, whole, strict=True) if not one):
            hint = f"run tfrtool {target.command} --resume to write what is missing"
            what = "changed or deleted during the write"
            raise WriteError(what, path=self.place / name, hint=hint)
        texts = {self.place / name: text for name, text in metadata.items()}
        last = texts[self.place / commit]
        if self._folder:
            last = _pointer(json.loads(last), commit, self._folder)
        else:
            del texts[self.place / commit]
        with signals_wait():
            with self._errors():
                etags = {path: _etag(path) for path in texts}
                self._put_claim(self._claim, commit=commit)
                for path, text in texts.items():
                    self._put[path] = _put(self._root, path, text.encode(), etags[path])
                _put(self._root, self._root / commit, last.encode(), self._before[commit])
            self._committed = True
            what = "complete, but the files it replaced can't be deleted (--resume tries again)"
            with os_errors_as(WriteError, self._root, what):
                if _etag(self._root / STAGING / CLAIM) == self._claim:
                    self._tidy([*names, *metadata])

    def end(self, *, keep: bool) -> None:
        """Delete what a write without a commit has made; or ``keep`` it to be resumed."""
        if self._claim is None or self._committed:
            return
        with contextlib.suppress(OSError):
            data, etag = _read(self._root / STAGING / CLAIM)
            if (mine := etag == self._claim) and keep:
                return
            used = {_object(data).get("folder")} - {None}
            if data is None and any(self._commits().values()):
                current = current_folder(self._root)
                used = {"" if current == self._root else current.name}
            if data is not None and not mine and self._folder in used:
                return  # another write has taken over what this one has made
            doomed = list(self._notes(self._folder or _FLAT))
            if mine or self._folder not in used:
                abort_uploads(self.place)
                doomed += self._made()
                if self._folder or mine:
                    doomed += (path for path in self.place.iterdir() if _describes(path.name))
                report = self.place / REPORT  # another write copies all but this one
                doomed += [report] if self._put.get(report) == _etag(report) else []
            self._root.store.delete([path.key for path in doomed])
            if mine:
                self._release()

    @property
    def _folder(self) -> str:
        return "" if self.place == self._root else self.place.name

    def _note(self, name: str) -> RemotePath:
        path: RemotePath = self._root / STAGING / (self._folder or _FLAT) / f"{name}.done.json"
        return path

    def _notes(self, folder: str = "") -> Iterator[RemotePath]:
        for key, _ in self._root.store.list((self._root / STAGING / folder).key):
            yield self._root / key.removeprefix(self._root.key).lstrip("/")

    def _made(self) -> list[RemotePath]:
        """Return the shards that there are where this write puts them."""
        own = is_shard if self._folder else lambda name: is_shard_of(name, self._name)
        return [path for path in self.place.iterdir() if own(path.name)]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        with os_errors_as(WriteError, self._root, "can't be written"):
            yield

    def _commits(self) -> dict[str, str | None]:
        return {name: _etag(self._root / name) for name in COMMITS}

    def _put_claim(self, etag: str | None, **facts: Any) -> None:
        """Make the claim, or change the one with an ETag; `UsageError` if it is another's."""
        self._facts |= facts
        data = json.dumps(self._facts).encode()
        self._claim = _put(self._root, self._root / STAGING / CLAIM, data, etag)

    def _check_claim(self) -> None:
        if _etag(self._root / STAGING / CLAIM) != self._claim:
            raise _lost(self._root)

    def _tidy(self, new: Iterable[str]) -> None:
        """Delete what a commit has replaced, and put beside it what TFDS looks for there."""
        store, new = self._root.store, [*new]
        kept = {self.place / name for name in new} | {self._root / self._facts["commit"]}
        if self._folder and self._facts["commit"] == DATASET_INFO:
            for name in (name for name in new if _describes(name) and name not in COMMITS):
                store.copy((self.place / name).key, (self._root / name).key)
                kept.add(self._root / name)
        kept |= {path.with_name(f"{path.name}.idx") for path in kept}
        doomed = list[RemotePath]()
        for path in (self._root / name for name in self._facts["old"]):
            inside = VERSION_FOLDER.fullmatch(path.name)
            doomed += (one for one in path.iterdir() if _is_ours(one.name)) if inside else [path]
        doomed = [path for path in doomed if path not in kept]
        for first in (True, False):  # readers notice by the metadata that files were replaced
            store.delete([path.key for path in doomed if _describes(path.name) is first])
        self._release(map(self._note, filter(is_shard, new)))

    def _release(self, noted: Iterable[RemotePath] = ()) -> None:
        store, claim = self._root.store, self._root / STAGING / CLAIM
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


def _is_ours(name: str) -> bool:
    return is_ours(name.removesuffix(".idx"))


def _describes(name: str) -> bool:
    return is_ours(name) and not is_shard(name)


def _pointer(data: dict[str, Any], commit: str, folder: str) -> str:
    """Return metadata that names the folder of what it describes, as `current_folder` finds it."""
    if commit != DATASET_INFO:
        return json_text({"folder": folder, **data})
    splits = data.pop("splits")
    for split in splits:
        split["filepathTemplate"] = f"{folder}/{split['filepathTemplate']}"
    return json_text({"splits": splits, **data})


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

    `UsageError` for the ``root`` if another one is there; but not where it is the same, as after a
    request whose answer was lost and that was made again. `WriteError` if the store refuses a
    condition that holds.
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
