"""What the viewer shows: findings that still come in, and single records at once."""

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, cast

from markupsafe import Markup

from tfrtool.errors import ShardError, UsageError, printable
from tfrtool.examples.example import Feature, PayloadKind, decode_example
from tfrtool.examples.objects.read_objects import read_objects
from tfrtool.examples.objects.record_features import SIDES
from tfrtool.images.pixels import encoded
from tfrtool.inspection.dataset.dataset_summary import UNSPLIT
from tfrtool.inspection.pictures.objects import MAX_OBJECTS, hue_of, mask_of, masks_of, thumbnail
from tfrtool.inspection.pictures.pictures import pictures_of
from tfrtool.inspection.rows.payload_json import PayloadJson
from tfrtool.inspection.rows.sandbox import SqlChild
from tfrtool.inspection.table.selection import Selector
from tfrtool.records.framing import Record
from tfrtool.storage.arguments import Paths
from tfrtool.storage.child import Child, ChildDied, send_to_parent
from tfrtool.storage.json_values import to_json_values
from tfrtool.view.findings import Findings, FindingSteps
from tfrtool.view.pieces import piece
from tfrtool.view.terminal import as_argument, command_for, in_shell

_THUMB, _FULL = 128, 2048
_HELD_BYTES = 32 * 1024 * 1024
_SELECTIONS = 8
_GIVING_BACK = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""Has a process give memory back at once, where its C library is glibc: 70 MB less in statistics
of photographs."""

MAX_SECONDS = 30.0
"""Time for a question; who asked may be gone."""

_QUESTIONS = 4
"""Questions that are answered at once, each by a process of its own."""

_READING = 2
"""Answers whose records are read at once: each may take 32 MiB."""

_HEX = 4096
_LONGEST_VALUES = 1000

Question = dict[str, Any]


class Live:
    """Findings that a thread fills, and what a page asks of them.

    Attributes:
        found: the findings.
    """

    def __init__(self, shards: Paths, *, workers: int = 1) -> None:
        """Open shards; nothing is read yet but first records."""
        self.found = Findings(shards)
        self._workers = workers
        self._child: Child | None = None
        self._done = False
        self._lock = threading.Lock()
        self._held: OrderedDict[int, Record] = OrderedDict()
        self._held_bytes = 0
        self._asking, self._ended = threading.Lock(), False
        self._selector: Selector | None = None
        self._selections: OrderedDict[str, Future[Any]] = OrderedDict()
        self._turns = threading.Semaphore(_QUESTIONS)
        self._reading = threading.Semaphore(_READING)
        self._children: set[SqlChild] = set()
        self._idle: list[SqlChild] = []
        self._pieces: dict[tuple[str, str], Markup] = {}

    def start(self) -> None:
        """Begin to read, in a process of its own: pages are answered meanwhile."""
        self._child = Child(environment=os.environ | _GIVING_BACK)
        self._child.send(_find, self.found.search(self._workers))
        threading.Thread(target=self._follow, args=(self._child,), daemon=True).start()

    def _follow(self, child: Child) -> None:
        try:
            while (told := cast(tuple[str, Any] | None, child.receive())) is not None:
                self.found.take(*told)
        except ChildDied:
            self.found.take("reading", "the process that reads ran out of memory or was killed")
        except Exception as error:  # noqa: BLE001 - the page tells it
            self.found.take("reading", str(error))
        finally:
            self._done = True

    def interrupt(self) -> None:
        """Answer no more questions, not even those that are being answered: they may take long."""
        with self._asking:
            self._ended = True
            for child in self._children:
                child.kill()

    def close(self) -> None:
        """Stop reading, and delete what was put aside."""
        self.interrupt()
        for child in (self._child, *self._idle):
            if child is not None:
                child.__exit__()
        self.found.close()

    def state(self) -> dict[str, Any]:
        """Return how far it is: what ``/api/state`` answers."""
        found, progress = self.found, self.found.progress
        table = found.table
        return {
            "records": len(found.index),
            "counted": found.index.complete,
            "read": table.rows,
            "done": self._done,
            "step": None if progress is None or self._done else progress.what,
            "step_done": None if progress is None else progress.done,
            "step_total": None if progress is None else progress.total,
            "version": self._version(),
            "images": found.has_images,
            "columns": list(found.selector().columns) if table.rows else [],
            "splits": list(dict.fromkeys(found.split_of.values())),
            "classes": list(map(printable, found.labels().names[:500])) if table.rows else [],
            "faults": None if found.verdict is None else found.verdict.n_problems,
            "damaged": sum(one.count for one in table.faults.values()),
            "errors": {step: printable(why) for step, why in found.errors.items()},
            "changed": [printable(path.name) for path in found.index.changed()],
        }

    def _version(self) -> str:
        """Return what changes when pieces would say more."""
        found = self.found
        steps = (found.summary, found.schema, found.statistics, found.verdict)
        return "".join(str(int(step is not None)) for step in steps) + f"-{found.stage}"

    def rows(self, question: Question, start: int, count: int) -> dict[str, Any]:
        """Return some of the rows that fulfil a question, and how many there are."""
        done = self.found.table_done if _asks(question) else self.found.index.complete
        total, chosen = self._chosen(question, max(start, 0), max(count, 0))
        with self._reading:
            return self._described(question, start, total, chosen, done)

    def _described(
        self, question: Question, start: int, total: int, chosen: list[int], done: bool
    ) -> dict[str, Any]:
        table = self.found.table
        known = [row for row in chosen if row < table.rows]
        asked = {side: f"image.{side}" for side in ("width", "height") if table.has("image.width")}
        values = table.take(list(asked.values()), known) if asked and known else {}
        captions = self.found.captions(known)
        self._hold(chosen)
        return {
            "total": total,
            "complete": done,
            "start": start,
            "command": command_for(self.found, question),
            "rows": [
                {
                    **self._place(row),
                    "label": captions.get(row),
                    **{key: values.get(row, {}).get(name) for key, name in asked.items()},
                    **self._summary(row),
                }
                for row in chosen
            ],
        }

    def _chosen(self, question: Question, start: int, count: int) -> tuple[int, list[int]]:
        if not _asks(question):
            total = len(self.found.index)
            return total, list(range(min(start, total), min(start + count, total)))
        with self._asking:  # a page asks for several parts of the same
            selector, asked = self.found.selector(), repr(sorted(question.items(), key=str))
            if self._selector is not selector:
                self._selector, self._selections = selector, OrderedDict()
            selections = self._selections
            is_new = asked not in selections
            answer = selections.setdefault(asked, Future())
            selections.move_to_end(asked)
            if len(selections) > _SELECTIONS:
                selections.popitem(last=False)
        if is_new:
            try:
                answer.set_result(self._select(selector, question))
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                with self._asking:
                    selections.pop(asked, None)
                answer.set_exception(error)
        found = answer.result()
        return len(found), [int(row) for row in found[start : start + count]]

    def _select(self, selector: Selector, question: Question) -> Any:
        """Return the rows that match a question, found by a process with limited memory."""
        equal = {
            k: None if (k, v) == ("split", UNSPLIT) else v for k, v in question["equal"].items()
        }
        late = threading.Event()
        with self._turns:
            with self._asking:
                if self._ended:
                    raise UsageError("the viewer has stopped")
                child = self._idle.pop() if self._idle else SqlChild()
                self._children.add(child)

            def end() -> None:
                late.set()
                child.kill()

            timer = threading.Timer(MAX_SECONDS, end)
            timer.start()
            is_sound = False
            try:
                rows = child.call(partial(selector.select, **{**question, "equal": equal}))
                is_sound = True
                return rows
            except UsageError:
                is_sound = True
                raise
            except ShardError as error:
                if self._ended:
                    raise UsageError("the viewer has stopped") from error
                if late.is_set():
                    what = f"the query took longer than {MAX_SECONDS:.0f} seconds"
                    raise UsageError(what) from error
                raise
            finally:
                timer.cancel()
                timer.join()
                with self._asking:
                    self._children.discard(child)
                    is_kept = is_sound and not (late.is_set() or self._ended or self._idle)
                    if is_kept:
                        self._idle.append(child)
                if not is_kept:
                    child.__exit__()

    def _place(self, row: int) -> dict[str, Any]:
        place = self.found.index.place(row)
        split = self.found.split_of.get(place.path)
        return {
            "row": row,
            "shard": printable(place.path.name),
            "record": place.record,
            "offset": place.offset,
            "split": split and printable(split),
        }

    def _summary(self, row: int) -> dict[str, Any]:
        """Return the first values of a record, for a table of records without images."""
        if self.found.has_images:
            return {}
        record = self._record(row)
        if record is None:
            return {"damaged": True}
        told = PayloadJson(most=9).describe(record.payload)
        held = told.get("features", told)
        short = {printable(str(k))[:100]: _short(v) for k, v in list(held.items())[:12]}
        return {"features": short} if isinstance(held, dict) else {"features": {"": _short(held)}}

    def _hold(self, rows: Sequence[int]) -> dict[int, Record]:
        """Read rows, those of a shard at once, and keep them while there is room."""
        missing = [row for row in rows if row not in self._held]
        found = self.found.index.read(missing, _HELD_BYTES) if missing else {}
        with self._lock:
            for row, record in found.items():
                if row not in self._held:
                    self._held[row] = record
                    self._held_bytes += len(record.payload)
                while self._held_bytes > _HELD_BYTES:
                    _, old = self._held.popitem(last=False)
                    self._held_bytes -= len(old.payload)
        return found

    def _record(self, row: int) -> Record | None:
        self.found.index.place(row)
        held = self._held.get(row)  # others may let go of it at any time
        return held if held is not None else self._hold([row]).get(row)

    def picture(self, row: int, number: int = 0, *, full: bool = False) -> bytes | None:
        """Return a record's image, encoded anew; None if it can't be shown."""
        record = self._record(row)
        if record is None:
            return None
        roles = self.found.roles(self.found.index.place(row).path)
        if not full:
            return encoded(thumbnail(record.payload, roles, _THUMB, number))
        found = islice(pictures_of(record.payload, roles, _FULL), max(number, 0), None)
        return next((encoded(picture) for _, _, picture in found), None)

    def mask(self, row: int, number: int) -> bytes | None:
        """Return a mask of a record as a PNG."""
        record = self._record(row)
        if record is None or not _features(record.payload):
            return None
        roles = self.found.roles(self.found.index.place(row).path)
        return encoded(mask_of(record.payload, roles, number, _FULL), exact=True)

    def record(self, row: int, start: int) -> dict[str, Any]:
        """Return a record in full, with some of its bytes from ``start`` on in hexadecimal."""
        place, record = self._place(row), self._record(row)
        path = self.found.index.place(row).path
        quoted = in_shell(as_argument(path))
        told = {
            **place,
            "path": printable(str(path)),
            "commands": [
                f"tfrtool cat {quoted} --records {place['record']}",
                f"tfrtool inspect shard {quoted} --record {place['record']} --raw",
            ],
        }
        if record is None:
            fault = "The record is damaged, or the file has changed since it was opened"
            return {**told, "damaged": fault, "commands": [f"tfrtool verify {quoted}"]}
        features = _features(record.payload)
        roles = self.found.roles(path)
        objects = read_objects(features, roles.object_names, MAX_OBJECTS)
        pictures = list(pictures_of(record.payload, roles, 1)) if roles.image else []
        part = record.payload[max(start, 0) : max(start, 0) + _HEX]
        return {
            **told,
            "bytes": len(record.payload),
            "length_crc": f"{record.length_crc:08x}",
            "payload_crc": f"{record.payload_crc:08x}",
            "content": _cut(PayloadJson(most=_LONGEST_VALUES).describe(record.payload)),
            "pictures": [
                {
                    "place": where,
                    "size": one.size,
                    "problem": one.problem and printable(one.problem),
                    "label": printable(label),
                    "orientation": one.orientation,
                }
                for label, where, one in pictures
            ],
            "boxes": [
                {**dict(zip(SIDES, one.box, strict=True)), "text": printable(one.title)}
                | {"colour": hue_of(one)}
                for one in objects.objects
                if one.can_be_drawn
            ],
            "masks": len(masks_of(objects)),
            "hex_start": max(start, 0),
            "hex": part.hex(),
        }

    def printed(self, command: str) -> list[Any]:
        """Return the objects that a command prints with ``--json``; none as long as it isn't known.

        ``IndexError`` if it is none of "inspect-dataset", "inspect-schema", "inspect-stats" and
        "verify".
        """
        found = self.found
        if command == "verify":
            verdict = found.verdict
            return (
                []
                if verdict is None
                else [*(v.to_json() for v in verdict.shards), verdict.to_json()]
            )
        known = {
            "inspect-dataset": found.summary and to_json_values(found.summary),
            "inspect-schema": found.schema and found.schema.to_json(),
            "inspect-stats": found.statistics and to_json_values(found.statistics),
        }
        if command not in known:
            raise IndexError("no such command")
        return [known[command]] if known[command] else []

    def piece(self, name: str) -> Markup:
        """Return a piece of the page as HTML; the same until more is known."""
        key = (name, self._version())
        if key not in self._pieces:
            for old in [one for one in self._pieces if one[0] == name]:
                self._pieces.pop(old, None)
            self._pieces[key] = piece(name, self.found, lambda row: f"/thumb/{row}")
        return self._pieces[key]

    def marked(self, rows: Sequence[int]) -> str:
        """Return rows as the lines that ``tfrtool filter --drop`` reads; `UsageError` if it can't.

        Shards have their names there, or their paths where others have the same name.
        """
        places = [self.found.index.place(row) for row in sorted(set(rows))]
        counts = Counter(path.name for path in self.found.paths)
        lines = []
        for path, record, _ in places:
            name = path.name if counts[path.name] == 1 else str(path.absolute())
            if not name.isprintable() or name != name.strip():
                what = "the file's name has characters that a list of records can't hold"
                raise UsageError(what, path=path, hint="rename the file")
            lines.append(f"{name} {record}\n")
        return "".join(lines)


def _asks(question: Question) -> bool:
    return any(question[key] for key in ("where", "text", "equal", "sort"))


def _features(payload: bytes) -> dict[str, Feature]:
    try:
        return dict(decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE).features)
    except ValueError:
        return {}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:100]
    if isinstance(value, list):
        return [_short(one) for one in value[:8]] + (["..."] if len(value) > 8 else [])
    return value


def _cut(value: Any) -> Any:
    """Return JSON values with what is very long cut short, and said to be."""
    if isinstance(value, dict):
        kept = {k: _cut(v) for k, v in list(value.items())[:_LONGEST_VALUES]}
        if len(value) > _LONGEST_VALUES:
            kept["..."] = f"{len(value) - _LONGEST_VALUES:,} more"
        return kept
    if isinstance(value, list) and len(value) > _LONGEST_VALUES:
        return [*map(_cut, value[:_LONGEST_VALUES]), f"... {len(value) - _LONGEST_VALUES:,} more"]
    if isinstance(value, str) and len(value) > 20_000:
        return f"{value[:20_000]} ... {len(value) - 20_000:,} more characters"
    return list(map(_cut, value)) if isinstance(value, list) else value


def _find(search: FindingSteps) -> None:
    if hasattr(os, "nice"):
        os.nice(5)  # who waits for a page comes first
    search.run(lambda step, found: send_to_parent((step, found)))
