"""A viewer's state: findings that a process adds to, and questions that other processes answer."""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from markupsafe import Markup

from tfrtool.errors import ShardError, UsageError
from tfrtool.inspection.rows.sql_child import SqlChild
from tfrtool.inspection.table.offset_reader import OffsetReader
from tfrtool.inspection.table.record_query import ShownColumns
from tfrtool.inspection.table.record_table import RecordTable, write_side
from tfrtool.storage.arguments import Paths
from tfrtool.storage.child import Child, ChildDied, send_to_parent
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
        marks: the marked records.
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
    ) -> None:
        """Open shards; only their first records are read before `start`."""
        self.found = Findings(shards, as_stored=as_stored, types=types)
        self.marks = Marks(self.found.title, self.found.paths, self.found.listed_names)
        self.reader = OffsetReader(self.found.paths)
        self.done = False
        self.columns: tuple[int, ShownColumns] = (0, ShownColumns())
        self.overview: tuple[str, dict[str, Markup]] = ("", {})
        self._workers = workers
        self._child: Child | None = None
        self._lock, self._ended = threading.Lock(), False
        self._asking = threading.Lock()
        self._sql: SqlChild | None = None
        self._marked, self._marks_file, self._versions = frozenset[Any](), "", 0

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
            if self._sql is not None:
                self._sql.kill()

    def close(self) -> None:
        """Stop reading and delete the temporary files."""
        self.interrupt()
        for child in (self._child, self._sql):
            if child is not None:
                child.__exit__()
        self.found.__exit__()

    @property
    def version(self) -> str:
        """Changes when pages have more to show."""
        found = self.found
        steps = (found.gallery, found.summary, found.schema, found.statistics, found.verdict)
        return f"{len(found.table.pieces)}-{sum(step is not None for step in steps)}"

    def _table(self) -> RecordTable:
        """Return the records that have been read, with the marks."""
        table, marked = self.found.table, self.marks.records
        if marked != self._marked:
            self._versions += 1
            rows = [(*key, True) for key in marked]
            self._marks_file = write_side(table.folder, "marks", rows, self._versions)
            self._marked = marked
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
