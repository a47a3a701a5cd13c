"""A viewer's state: findings that a process adds to, and questions that other processes answer."""

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from markupsafe import Markup

from tfrtool.errors import ShardError, UsageError
from tfrtool.inspection.rows.sql_child import SqlChild
from tfrtool.inspection.table.downloads import Download, write_selected
from tfrtool.inspection.table.offset_reader import OffsetReader
from tfrtool.inspection.table.record_query import Question, RecordKey, ShownColumns, selected_rows
from tfrtool.inspection.table.record_table import RecordTable, write_side
from tfrtool.storage.arguments import Paths
from tfrtool.storage.child import Child, ChildDied, send_to_parent
from tfrtool.storage.remote_path import AnyPath
from tfrtool.view.findings import Findings, FindingSteps
from tfrtool.view.marks import Marks

Result = TypeVar("Result")

MAX_SECONDS = 30.0
"""Time for a question; whoever asked it may be gone."""

_GIVING_BACK = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""Makes glibc return memory at once: 70 MB less in statistics of photos."""


class Live:
    """Findings that a process adds to while pages show them.

    Attributes:
        found: the findings.
        marks: the tags of records.
        reader: reads single records.
        done: whether everything has been found.
        columns: what `columns_of` returned, after the stage of reading for which it was asked.
        overview: the sections of the overview, after the version of the findings.
    """

    def __init__(
        self,
        shards: Paths,
        *,
        workers: int = 1,
        as_stored: bool = False,
        types: Mapping[str, str] | None = None,
        predictions: AnyPath | None = None,
    ) -> None:
        """Open shards; only their first records are read before `start`.

        For ``predictions``, see `Findings.add_predictions`.
        """
        self.found = Findings(shards, as_stored=as_stored, types=types)
        if predictions is not None:
            try:
                self.found.add_predictions(predictions)
            except BaseException:
                self.found.__exit__()
                raise
        self.marks = Marks(self.found.title, self.found.paths, self.found.listed_names)
        self.reader = OffsetReader(self.found.paths)
        self.done = False
        self.columns: tuple[int, ShownColumns] = (0, ShownColumns())
        self.overview: tuple[str, dict[str, Markup]] = ("", {})
        self._workers, self._as_stored, self._types = workers, as_stored, types
        self._downloads = set[Child]()
        self._child: Child | None = None
        self._lock, self._ended = threading.Lock(), False
        self._asking = threading.Lock()
        self._sql: SqlChild | None = None
        self._tags: Mapping[str, frozenset[RecordKey]] = {}
        self._marks_file, self._versions = "", 0

    def start(self) -> None:
        """Begin to read in another process, so that pages stay fast."""
        self._child = Child(environment=os.environ | _GIVING_BACK)
        self._child.send(_find, self.found.steps(self._workers))
        threading.Thread(target=self._follow, args=(self._child,), daemon=True).start()

    def _follow(self, child: Child) -> None:
        try:
            while (message := cast(tuple[str, Any] | None, child.receive())) is not None:
                self.found.store(*message)
        except ChildDied:
            self.found.store("reading", "the process that reads ran out of memory or was killed")
        except Exception as error:  # noqa: BLE001 - the page shows it
            self.found.store("reading", str(error))
        finally:
            self.done = True

    def interrupt(self) -> None:
        """Stop answering questions, which can take long."""
        with self._lock:
            self._ended = True
            for child in (self._sql, *self._downloads):
                if child is not None:
                    child.kill()

    def close(self) -> None:
        """Stop reading and delete the temporary files."""
        self.interrupt()
        for child in (self._child, self._sql):
            if child is not None:
                child.__exit__()
        self.found.__exit__()

    def download(self, form: str, question: Question) -> Path:
        """Write the records of a question to a temporary file, which the caller deletes.

        Raises:
            UsageError: no record matches, the question makes no sense, or the file is too large.
            ShardError: a shard can't be read, or too much memory is needed.
        """
        found, name = self.found, secrets.token_hex(8)
        rows = self.ask(selected_rows, question)
        if not rows:
            raise UsageError("no records match")
        folder = found.table.folder
        selected, target = folder / f"selected-{name}.parquet", folder / f"download-{name}"
        image = found.roles(0).image
        wanted = Download(form, found.paths, found.arguments, image, self._as_stored, self._types)
        child: Child | None = None
        try:
            write_selected(selected, rows, found.paths, found.listed_names)
            with self._lock:
                if self._ended:
                    raise UsageError("the viewer has stopped")
                child = Child(environment=os.environ | _GIVING_BACK)
                self._downloads.add(child)
            with child:
                child.call(wanted.write, selected, target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        finally:
            selected.unlink(missing_ok=True)
            if child is not None:
                self._downloads.discard(child)
        return target

    @property
    def version(self) -> str:
        """Changes when pages have more to show."""
        found = self.found
        steps = (found.gallery, found.summary, found.schema, found.statistics, found.verdict)
        return f"{len(found.table.pieces)}-{sum(step is not None for step in steps)}"

    def _table(self) -> RecordTable:
        """Return the records that have been read, with the marks."""
        self.marks.refresh()
        table, tags = self.found.table, self.marks.tags
        if tags != self._tags:
            self._versions += 1
            tags_of = dict[RecordKey, list[str]]()
            for tag, records in tags.items():
                for key in records:
                    tags_of.setdefault(key, []).append(tag)
            rows = ((*key, of_record) for key, of_record in tags_of.items())
            before = self._marks_file
            self._marks_file = write_side(table.folder, "marks", rows, self._versions)
            self._tags = tags
            if before:  # queries read it as they connect
                (table.folder / before).unlink(missing_ok=True)
        return replace(table, marks=self._marks_file or table.marks)

    def ask(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Call a function with the table, in a process with limited memory and time.

        Raises:
            UsageError: the question makes no sense or takes too long.
            ShardError: it fails at a value, or needs too much memory.
        """
        is_late = threading.Event()
        with self._asking:
            table = self._table()
            with self._lock:
                if self._ended:
                    raise UsageError("the viewer has stopped")
                child = self._sql = self._sql or SqlChild()

            def end() -> None:
                is_late.set()
                child.kill()

            timer = threading.Timer(MAX_SECONDS, end)
            timer.start()
            try:
                result: Result = child.call(_call, function, table, arguments, options)
                return result
            except ShardError as error:
                child.__exit__()
                self._sql = None
                if is_late.is_set():
                    what = f"the query took longer than {MAX_SECONDS:.0f} seconds"
                    raise UsageError(what) from error
                raise
            finally:
                timer.cancel()
                timer.join()


def _call(function: Callable[..., Any], table: RecordTable, arguments: Any, options: Any) -> Any:
    return function(table, *arguments, **options)


def _find(steps: FindingSteps) -> None:
    if hasattr(os, "nice"):
        os.nice(5)  # pages come first
    steps.run(lambda step, found: send_to_parent((step, found)))
