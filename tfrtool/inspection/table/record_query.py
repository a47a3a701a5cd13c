"""Questions about the rows of a `RecordTable`, answered by DuckDB, which reads no other file."""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.arrow.columns import PLACES
from tfrtool.examples.arrow.value_types import innermost_type
from tfrtool.examples.fields import Struct, only_fields
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.inspection.pictures.cameras import StepCameras
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.inspection.rows.database import connect, literal, quoted, unique_names
from tfrtool.inspection.rows.extra_columns import ExtraColumns
from tfrtool.inspection.rows.payload_json import PayloadJson
from tfrtool.inspection.rows.sql_errors import as_sql_error
from tfrtool.inspection.rows.statement import Statement, check_condition
from tfrtool.inspection.table.column_ranges import ColumnRange, ValueKind, value_kind
from tfrtool.inspection.table.record_table import (
    MAX_COLUMNS,
    OWN,
    SIDES,
    RecordTable,
    TableFeature,
    TablePiece,
)
from tfrtool.records.framing import FaultKind

IMAGE_COLUMNS = ("width", "height", "brightness", "entropy")
"""Columns of images that conditions can name, unless a feature has that name."""

PIXELS = (64, 128, 256, 512, 1024, 2048)
BYTES = (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
"""Groups of sizes, by pixels of the longer side or bytes of a record; 0 is beyond the last."""

PREDICTION_COLUMNS = ("predicted", "confidence", "loss", "correct")
"""Columns of predictions that conditions can name, unless a feature has that name."""

_CORRECT = (
    "coalesce(q.correct, CASE WHEN q.label IS NULL AND q.confidence IS NOT NULL "
    "AND len(p.classes) = 1 THEN p.classes[1] = q.predicted END)"
)
_SURE = f"CASE WHEN {_CORRECT} THEN q.confidence ELSE 1 - q.confidence END"
_PREDICTIONS = {
    "predicted": "q.predicted",
    "confidence": "q.confidence",
    "loss": "coalesce(q.loss, "
    f"CASE WHEN q.confidence + {_CORRECT}::INT IS NOT NULL THEN -ln(greatest({_SURE}, 1e-7)) END)",
    "correct": _CORRECT,
}
"""The values of `PREDICTION_COLUMNS` in SQL. Without a true label, the class is that of the record;
without a loss, it is the least that the confidence allows."""

_LONGEST_LIST = 1000
"""Values of a list of a step that are shown at most."""

MOST_BITS = 3
"""Bits in which the hashes of similar images differ at most."""

ROW = (
    '"#shard", _record, _offset, _bytes, "#classes", "#width", "#height", "#faults", "#tags", '
    '"#prediction", "#long"'
)
ORDER = '"#shard", _record'
_HIDDEN = (*IMAGE_COLUMNS, *PREDICTION_COLUMNS, "hash", "digest", "shard", "classes", "faults",
           "tags", "prediction", "long")  # fmt: skip
_READ = "hive_partitioning = false"
"""Without it, a folder named ``shard=0`` above the file replaces the column of that name."""

_PREDICTION = (
    """CASE WHEN "#predicted" IS NULL THEN 'none' WHEN "#correct" THEN 'right' """
    """WHEN NOT "#correct" THEN 'wrong' END"""
)
_OF_PREDICTIONS = ("prediction", "predicted", "confidence")
_TENTH = 'CASE WHEN "#confidence" IS NOT NULL THEN least(floor("#confidence" * 10), 9)::INT END'
"""Groups of predictions in SQL."""

_LISTED, _VALUES = 9, 1000
"""Values of a list for a table, and of a facet; the most frequent ones."""

_SAMPLED_ROWS, MOST_FACET_VALUES, _LONGEST_FACET_VALUE, _FACET_COLUMNS = 10_000, 20, 60, 8
"""Records by which columns with few values are found, their values, characters of these, and how
many of such columns are counted."""

_SCHEMA = literal(FaultKind.SCHEMA.value)
_FAULTS = (
    f"coalesce(f.kinds, CASE WHEN s.verified OR coalesce(p.fault, {_SCHEMA}) = {_SCHEMA} "
    f"THEN [] ELSE [p.fault] END) || CASE WHEN p.fault = {_SCHEMA} THEN [p.fault] ELSE [] END"
)
"""A row's faults: verify's, which doesn't list all records that differ from features.json."""

RecordKey = tuple[int, int]
"""Number of a shard, and number of a record in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which records to show, in which order. None and "" don't restrict it.

    Attributes:
        where: SQL condition.
        text: part of any text in a record, in upper or lower case.
        split: "" for no split.
        label: one of a record's classes.
        shard: number of the shard.
        record: this record alone.
        fault: kind of fault, or "any".
        size: group of `PIXELS`, or of `BYTES` without images.
        copies: a record with the same image, or "any" that has copies.
        like: a record with a similar image.
        marked: whether a record has a tag.
        tagged: one of a record's tags.
        prediction: "right" or "wrong", or "none" without a prediction.
        predicted: the predicted class.
        confidence: tenth of the confidence, from 0 to 9.
        values: columns with the text of their value, or of one of their list; None for no value.
        ranges: ranges of the values of columns.
        sort: column.
        descending: whether the largest value comes first.
    """

    where: str = ""
    text: str = ""
    split: str | None = None
    label: str | None = None
    shard: int | None = None
    record: RecordKey | None = None
    fault: str | None = None
    size: int | None = None
    copies: RecordKey | str | None = None
    like: RecordKey | None = None
    marked: bool | None = None
    tagged: str | None = None
    prediction: str | None = None
    predicted: str | None = None
    confidence: int | None = None
    values: tuple[tuple[str, str | None], ...] = ()
    ranges: tuple[ColumnRange, ...] = ()
    sort: str = ""
    descending: bool = False


class Row(NamedTuple):
    """What a list shows of a record."""

    shard: int
    record: int
    offset: int
    bytes: int
    classes: list[str]
    width: int | None
    height: int | None
    faults: list[str]
    tags: list[str]
    prediction: dict[str, Any] | None = None  # label, predicted, confidence, loss and correct
    long: Mapping[str, str] | None = None  # what values that are too long are, by column
    note: str = ""  # why it is in the list


class Answer(NamedTuple):
    """A page of the matching records.

    Attributes:
        total: number of matching records.
        rows: those of the page.
        values: for each row, the values of the columns that were asked for.
        facets: for each facet, values with the number of records that match if it is chosen.
        value_facets: the same for columns with few values; their texts, None for no value.
    """

    total: int = 0
    rows: list[Row] = []  # noqa: RUF012 - tuples don't share it
    values: list[tuple[Any, ...]] = []  # noqa: RUF012
    facets: dict[str, list[tuple[Any, int]]] = {}  # noqa: RUF012
    value_facets: dict[str, list[tuple[str | None, int]]] = {}  # noqa: RUF012


class ShownColumns(NamedTuple):
    """The columns of a table.

    Attributes:
        shown: the columns for people.
        names: all columns.
        examples: conditions that hold for some of the records.
        facets: columns with few values, which are worth counting.
        kinds: what the values of features are, by their names; None for structs and times.
    """

    shown: list[str] = []  # noqa: RUF012 - tuples don't share it
    names: list[str] = []  # noqa: RUF012
    examples: list[str] = []  # noqa: RUF012
    facets: list[str] = []  # noqa: RUF012
    kinds: dict[str, ValueKind | None] = {}  # noqa: RUF012


class RecordQuery:
    """A connection to the rows of a table, as the view ``records``.

    A feature is a column with its own name. Text is VARCHAR, other bytes are BLOB. What is in
    structs is also a column, whose name is a path such as ``steps/reward``. There are also
    `PLACES`, ``label_name`` if class names are known, and `IMAGE_COLUMNS` if there are images.

    Attributes:
        features: columns that are features, with their types.
        types: the same, and what is in structs.
        shown: columns of a table for people, with their values in SQL: for a struct its fields, and
            for a list of structs the number of its items and then its fields.
        quoted: all columns that conditions and sorting can name, with their names in SQL.
    """

    def __init__(self, table: RecordTable) -> None:
        self.has_images, self.has_predictions = table.has_images, table.has_predictions
        self._connection = connect(table.folder)
        self.features = _merged(table.pieces)
        kinds = self._sql_types()
        self.features = {name: one for name, one in self.features.items() if one in kinds}
        values = {name: f"p.v{number}" for number, name in enumerate(self.features)}
        self.types = dict(self.features)
        for name, kind in self.features.items():
            for path, value, inner in _in_structs(name, values[name], kind):
                if len(values) < MAX_COLUMNS and path not in values:
                    values[path], self.types[path] = value, inner
        rows, folders = self._rows(table, kinds), self._add_folders()
        extra = [LABEL_NAME] * bool(table.class_names) + [*IMAGE_COLUMNS] * self.has_images
        extra += [*PREDICTION_COLUMNS] * table.has_predictions
        extra = [*PLACES, *folders, *(name for name in extra if name not in self.types)]
        shown = unique_names([*(f"#{name}" for name in _HIDDEN), *extra, *self.types])
        shown = [quoted(name) for name in shown[len(_HIDDEN) :]]
        names = dict(zip([*extra, *self.types], shown, strict=True))
        self.quoted = {name: names[name] for name in [*self.types, *extra]}
        # Features may have any name, such as path: here they are v0, v1 ...
        sources = {"_shard": "s.path", "_split": "s.split", **_PREDICTIONS, **folders}
        parts = [f"{sources.get(name, _row_column(name))} AS {names[name]}" for name in extra]
        hidden = (*IMAGE_COLUMNS, "hash", "digest", "shard", "long")
        parts += [f'{_row_column(name)} AS "#{name}"' for name in hidden]
        parts += [f"{value} AS {names[name]}" for name, value in values.items()]
        parts += [
            'coalesce(p.classes, []) AS "#classes"',
            f'{_FAULTS} AS "#faults"',
            'coalesce(m.tags, []) AS "#tags"',
            *(f'{value} AS "#{name}"' for name, value in _PREDICTIONS.items()),
            "CASE WHEN q.predicted IS NOT NULL THEN {label: q.label, "
            + ", ".join(f"{name}: {value}" for name, value in _PREDICTIONS.items())
            + '} END AS "#prediction"',
        ]
        self.shown = {
            path: shown
            for name, kind in self.features.items()
            for path, shown in self._shown(name, kind)
        }
        joined = ("faults f", "marks m", "predictions q")
        sides = " ".join(f"LEFT JOIN {side} USING (shard, record)" for side in joined)
        self._connection.execute(
            f"CREATE VIEW records AS SELECT {', '.join(parts)} "
            f"FROM ({rows}) p JOIN shards s USING (shard) JOIN folders d USING (shard) {sides}"
        )

    def _shown(self, name: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
        """Yield the columns for people of a feature, and their values in SQL, without pictures."""
        column, item = self.quoted[name], kind
        while pa.types.is_list(item):
            item = item.value_type
        if not pa.types.is_struct(item):
            yield name, _beginning(column, kind)
            return
        if item != kind:
            yield name, f"len({column}) || if(len({column}) = 1, ' item', ' items')"
        for path, inner in self.types.items():
            innermost = innermost_type(inner)
            if path.startswith(f"{name}/") and not (
                pa.types.is_struct(innermost) or pa.types.is_binary(innermost)
            ):
                yield path, _beginning(self.quoted[path], inner)

    def _rows(self, table: RecordTable, kinds: Mapping[pa.DataType, str]) -> str:
        """Create the tables of the sides, and return the rows of all pieces in SQL."""
        for name in SIDES:
            file = literal(str(table.folder / getattr(table, name)))
            self._connection.execute(f"CREATE TABLE {name} AS FROM read_parquet({file}, {_READ})")
        groups: dict[tuple[tuple[TableFeature, ...], int], list[str]] = {}
        for piece in table.pieces:
            files = groups.setdefault((piece.features, piece.start), [])
            files.append(str(table.folder / piece.file))
        stored = ", ".join(f'"{name}"' for name in OWN if name != "record")
        selects = [
            f"SELECT {stored}, record + {start} AS record, "
            f"{''.join(self._value(name, features, kinds) for name in self.features)} "
            f"FROM read_parquet([{', '.join(map(literal, files))}], {_READ})"
            for (features, start), files in groups.items()
        ]
        return " UNION ALL ".join(selects)

    def _add_folders(self) -> dict[str, str]:
        """Create a table with the values of folders; return its columns in SQL by their names."""
        shards = self._connection.execute("SELECT shard, path FROM shards ORDER BY shard")
        numbers, texts = zip(*shards.fetchall(), strict=True)
        paths = [*map(Path, texts)]
        found = ExtraColumns.of(paths, [*self.types, LABEL_NAME, *IMAGE_COLUMNS]).columns
        values = {
            f"f{number}": pa.array([one.values[path] for path in paths], one.kind)
            for number, one in enumerate(found)
        }
        table = pa.table({"shard": pa.array(numbers, pa.int32()), **values})
        self._connection.from_arrow(table).create("folders")
        return {one.name: f"d.f{number}" for number, one in enumerate(found)}

    def _sql_types(self) -> dict[pa.DataType, str]:
        """Return the types of features in SQL, without those that a cast can't name.

        Such are structs with fields that differ in case alone, or have no name.
        """
        import duckdb

        found = dict[pa.DataType, str]()
        for kind in dict.fromkeys(self.features.values()):
            with suppress(duckdb.Error):
                column = self._connection.from_arrow(pa.table([pa.nulls(0, kind)], ["c"]))
                self._connection.execute(f"SELECT CAST(NULL AS {column.types[0]})")
                if "\0" not in str(kind):  # where a name ends in DuckDB
                    found[kind] = str(column.types[0])
        return found

    def _value(
        self, name: str, features: tuple[TableFeature, ...], kinds: Mapping[pa.DataType, str]
    ) -> str:
        """Return a feature in SQL, from pieces that may have another form of it, or not have it."""
        wanted, value = self.features[name], "NULL"
        for number, feature in enumerate(features):
            if feature.name == name:
                value, is_list = f"c{number}", pa.types.is_list(feature.type)
                if _items(feature.type) != _items(wanted):
                    value = f"[encode(x) for x in {value}]" if is_list else f"encode({value})"
                if pa.types.is_list(wanted) and not is_list:
                    value = f"CASE WHEN c{number} IS NULL THEN NULL ELSE [{value}] END"
        return f"CAST({value} AS {kinds[wanted]}) AS v{[*self.features].index(name)}, "

    def fetch(self, sql: str, condition: str = "") -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT; errors are about the condition in it."""
        import duckdb

        try:
            return self._connection.execute(sql).fetchall()  # type: ignore[no-any-return]
        except duckdb.Error as error:
            raise as_sql_error(error, self.quoted, condition) from error

    def needs_any(self, where: str, columns: Collection[str]) -> bool:
        """Return whether a condition may need values of one of these columns."""
        sql = f"SELECT 1 FROM records WHERE (\n{where}\n)"
        statement = Statement.parse(self._connection, sql, ("records",))
        return any(statement.needs("records", name) for name in columns)

    def matching(self, question: Question) -> str:
        """Return the WHERE of a question."""
        parts = ["true"]
        if question.where.strip():
            check_condition(self._connection, question.where)
            parts.append(f"(\n{question.where}\n)")
        if question.text.strip():
            parts.append(self._contains(literal(question.text.strip().lower())))
        equalities = (
            ("coalesce(_split, '') = {}", question.split),
            ('list_contains("#classes", {})', question.label),
            ('list_contains("#tags", {})', question.tagged),
            (_PREDICTION + " = {}", question.prediction),
            ('"#predicted" = {}', question.predicted),
        )
        parts += [form.format(literal(text)) for form, text in equalities if text is not None]
        numbers = (
            ('"#shard"', question.shard),
            (self.size_group, question.size),
            (_TENTH, question.confidence),
        )
        parts += [f"{value} = {number}" for value, number in numbers if number is not None]
        if question.record is not None:
            parts.append('"#shard" = {} AND _record = {}'.format(*question.record))
        if question.fault is not None:
            kind = f'list_contains("#faults", {literal(question.fault)})'
            parts.append('len("#faults") > 0' if question.fault == "any" else kind)
        if question.copies == "any":
            again = 'SELECT "#digest" FROM records GROUP BY 1 HAVING count(*) > 1'
            parts.append(f'"#digest" IN ({again})')
        elif isinstance(question.copies, tuple):
            parts.append(f'"#digest" = ({_of("digest", question.copies)})')
        if question.like is not None:
            parts.append(f'bit_count(xor("#hash", ({_of("hash", question.like)}))) <= {MOST_BITS}')
        if question.marked is not None:
            parts.append(f'(len("#tags") > 0) = {question.marked}')
        for name, text in question.values:
            column, value = self.text_of(name), "NULL" if text is None else literal(text)
            is_equal = f"{column} IS NOT DISTINCT FROM {value}"
            is_list = pa.types.is_list(self.types[name]) and text is not None
            parts.append(f"list_contains({column}, {value})" if is_list else is_equal)
        parts += map(self.in_range, question.ranges)
        return f"WHERE {' AND '.join(parts)}"

    def in_range(self, values: ColumnRange) -> str:
        """Return the condition of a range in SQL."""
        self.check_column(values.name, self.types)
        return values.sql(self.quoted[values.name], self.types[values.name])

    def text_of(self, name: str) -> str:
        """Return the values of a column as text in SQL; a list of texts where they are lists."""
        self.check_column(name, self.types)
        kind = "VARCHAR[]" if pa.types.is_list(self.types[name]) else "VARCHAR"
        return f"CAST({self.quoted[name]} AS {kind})"

    def check_column(self, name: str, known: Mapping[str, Any]) -> None:
        """Check that a column is one of those; `UsageError` suggests the nearest name."""
        if name not in known:
            hint = suggestion(name, known, "columns")
            raise UsageError(f"no column {name!r}", hint=hint)

    @property
    def size_group(self) -> str:
        """The upper bound of a row's group of sizes, as SQL."""
        value, bounds = "_bytes", BYTES
        if self.has_images:
            value, bounds = 'greatest("#width", "#height")', PIXELS
        whens = " ".join(f"WHEN {value} <= {bound} THEN {bound}" for bound in bounds)
        return f"CASE WHEN {value} IS NULL THEN NULL {whens} ELSE 0 END"

    def order(self, question: Question) -> str:
        """Return the ORDER BY of a question."""
        if not question.sort:
            first = '"#loss" DESC NULLS LAST, ' if self.has_predictions else ""
            first = '"#digest", ' if question.copies == "any" else first
            return f"ORDER BY {first}{ORDER}"
        self.check_column(question.sort, self.quoted)
        way = "DESC" if question.descending else "ASC"
        return f"ORDER BY {self.quoted[question.sort]} {way} NULLS LAST, {ORDER}"

    def _contains(self, part: str) -> str:
        texts = [('"#classes"', pa.list_(pa.string()))]
        texts += [(self.quoted[name], kind) for name, kind in self.types.items()]
        parts = []
        for column, kind in texts:
            innermost = innermost_type(kind)
            is_text = pa.types.is_string(innermost)
            if is_text or pa.types.is_binary(innermost):
                value = "x" if kind != innermost else column
                shown = value if is_text else f"try(decode({value}))"
                found = f"contains(lower({shown}), {part})"
                if kind != innermost:
                    found = f"list_bool_or([{found} for x in {_flat(column, kind)}])"
                parts.append(f"coalesce({found}, false)")
        return f"({' OR '.join(parts)})"


@lru_cache(maxsize=1)
def query_of(table: RecordTable) -> RecordQuery:
    """Return the connection to a table, which is kept until another table is asked for."""
    return RecordQuery(table)


def answer(
    table: RecordTable,
    question: Question,
    start: int,
    count: int,
    *,
    columns: Sequence[str] = (),
    facets: bool = False,
    value_facets: Sequence[str] = (),
) -> Answer:
    """Return a page of the records of a question.

    Args:
        table: the rows.
        question: which records.
        start: the first one to return, from 0.
        count: how many to return.
        columns: columns for people whose values are returned.
        facets: whether to count facets.
        value_facets: columns whose values are counted.

    Raises:
        UsageError: the condition is wrong, or there is no such column.
        ShardError: the condition fails at a value, or needs too much memory.
    """
    query, condition = query_of(table), question.where
    where, order = query.matching(question), query.order(question)
    ((total,),) = query.fetch(f"SELECT count(*) FROM records {where}", condition)
    rest = f"FROM records {where} {order} LIMIT {count} OFFSET {start}"
    rows = [Row(*values) for values in query.fetch(f"SELECT {ROW} {rest}", condition)]
    shown = [query.shown[name] for name in columns if name in query.shown]
    values = query.fetch(f"SELECT {', '.join(shown)} {rest}", condition) if shown else []
    counts = _count_facets(query, question) if facets else {}
    by_value = {name: _count_values(query, question, name) for name in value_facets}
    return Answer(total, rows, values, counts, by_value)


def _count_facets(query: RecordQuery, question: Question) -> dict[str, list[tuple[Any, int]]]:
    """Return the values of each facet with the records that match if one of them is chosen."""
    counts = {}
    for name, value in (
        ("split", "coalesce(_split, '')"),
        ("label", 'unnest("#classes")'),
        ("shard", '"#shard"'),
        ("fault", 'unnest("#faults")'),
        ("size", query.size_group),
        ("tagged", 'unnest("#tags")'),
        ("prediction", _PREDICTION),
        ("predicted", '"#predicted"'),
        ("confidence", _TENTH),
    ):
        if name in _OF_PREDICTIONS and not query.has_predictions:
            continue
        others = replace(question, **{name: None})  # type: ignore[arg-type]
        found = _counted(query, others, value)
        counts[name] = [(one, count) for one, count in found if one is not None]
    if query.has_images:
        others = query.matching(replace(question, copies="any"))  # type: ignore[assignment]
        counts["copies"] = [("any", query.fetch(f"SELECT count(*) FROM records {others}")[0][0])]
    return counts


def _count_values(
    query: RecordQuery, question: Question, name: str
) -> list[tuple[str | None, int]]:
    """Return the values of a column as text, with the records that match if one is chosen."""
    others = tuple(one for one in question.values if one[0] != name)
    value = query.text_of(name)
    value = f"unnest(list_distinct({value}))" if pa.types.is_list(query.types[name]) else value
    return _counted(query, replace(question, values=others), value)


def _counted(query: RecordQuery, question: Question, value: str) -> list[tuple[Any, int]]:
    """Return the most frequent values of an expression in SQL, with the number of records."""
    return query.fetch(
        f"SELECT value, count(*) FROM (SELECT {value} AS value FROM records "
        f"{query.matching(question)}) GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT {_VALUES}",
        question.where,
    )


def position_of(table: RecordTable, question: Question, record: RecordKey) -> int | None:
    """Return which one of the records of a question a record is, from 0; None if it is none."""
    query = query_of(table)
    rows = (
        f'SELECT "#shard" AS shard, _record AS record, row_number() OVER ({query.order(question)}) '
        f"AS number FROM records {query.matching(question)}"
    )
    found = query.fetch(
        "SELECT number - 1 FROM ({}) WHERE shard = {} AND record = {}".format(rows, *record),
        question.where,
    )
    return found[0][0] if found else None


def typed_values(
    _: RecordTable, payload: bytes, columns: FeatureColumns, most: int
) -> dict[str, Any] | str:
    """Return a record's values by column, with the first items of lists, or why it has none."""
    (found,) = PayloadJson(columns=columns, most=most).describe_all([payload])
    return found if isinstance(found, str) else dict(found.get("features", found))


def step_values(
    _: RecordTable, payload: bytes, columns: FeatureColumns, cameras: StepCameras, step: int
) -> list[tuple[str, str]]:
    """Return the paths and values of a step of a record, as text, or why there are none."""
    root = only_fields(columns.root, cameras.others)
    if not isinstance(root, Struct):
        return []
    table, rejected = replace(columns, root=root).decode([payload])
    if rejected:
        return [("", why) for why in rejected.values()]
    if cameras.is_sequence:
        lists = table.column(cameras.name)
        names = [one.name for one in lists.type]
        steps = [one.flatten().slice(step, 1) for one in lists.flatten()]
        steps = [one if len(one) else pa.nulls(1, one.type) for one in steps]
        (row,) = PayloadJson(most=_LONGEST_LIST).rows(pa.RecordBatch.from_arrays(steps, names))
        return [*_texts_of(row)]
    array = table.column(cameras.path[0])
    for name in cameras.path[1:]:
        array = array.field(name)
    item = array.flatten().slice(step, 1)
    if not len(item):
        return []
    (row,) = PayloadJson(most=_LONGEST_LIST).rows(pa.RecordBatch.from_struct_array(item))
    return [*_texts_of(row)]


def _texts_of(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _texts_of(value, f"{path}{name}/")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{path}{name}", text


def select_records(
    table: RecordTable, question: Question, *, copies: bool = False
) -> list[tuple[Any, ...]]:
    """Return all records of a question; with ``copies``, without the first of each same image."""
    query, rest = query_of(table), ""
    where = query.matching(question)
    if copies:
        where += ' AND "#digest" IS NOT NULL'
        rest = f'QUALIFY row_number() OVER (PARTITION BY "#digest" ORDER BY {ORDER}) > 1'
    return query.fetch(f"SELECT {ORDER} FROM records {where} {rest}", question.where)


def selected_rows(table: RecordTable, question: Question) -> list[tuple[Any, ...]]:
    """Return all records of a question in its order, with their tags and predictions."""
    query = query_of(table)
    columns = ", ".join(f'"#{name}"' for name in ("tags", *PREDICTION_COLUMNS))
    rest = f"{query.matching(question)} {query.order(question)}"
    return query.fetch(f"SELECT {ORDER}, {columns} FROM records {rest}", question.where)


def columns_of(table: RecordTable) -> ShownColumns:
    """Return the columns of a table."""
    query = query_of(table)
    shown, names = list(query.shown), list(query.quoted)
    kinds = {name: value_kind(kind) for name, kind in query.types.items()}
    facets = _facet_columns(query)
    return ShownColumns(shown, names, _example_conditions(query), facets, kinds)


def _facet_columns(query: RecordQuery) -> list[str]:
    """Return columns with few values, by the first records; texts come before numbers."""
    ranks = {}
    for name, kind in query.types.items():
        values = kind.value_type if pa.types.is_list(kind) else kind
        is_text, is_whole = pa.types.is_string(values), pa.types.is_integer(values)
        if is_text or is_whole or pa.types.is_boolean(values):
            ranks[name] = (not is_text, values != kind)
    if not ranks:
        return []
    columns = {name: f"c{number}" for number, name in enumerate(ranks)}
    first = ", ".join(f"{query.text_of(name)} AS {column}" for name, column in columns.items())
    counts = (
        f"list_unique(flatten(list({column}))), max(list_max([len(x) for x in {column}])), count()"
        if ranks[name][1]
        else f"count(DISTINCT {column}), max(len({column})), count({column})"
        for name, column in columns.items()
    )
    (found,) = query.fetch(
        f"SELECT {', '.join(counts)} FROM (SELECT {first} FROM records LIMIT {_SAMPLED_ROWS})"
    )
    few = {}
    for number, name in enumerate(columns):
        distinct, longest, present = found[3 * number : 3 * number + 3]
        is_repeated = 3 * distinct <= present or distinct <= 2
        if 2 <= distinct <= MOST_FACET_VALUES and is_repeated and longest <= _LONGEST_FACET_VALUE:
            few[name] = ranks[name]
    return sorted(few, key=lambda name: few[name])[:_FACET_COLUMNS]


def _example_conditions(query: RecordQuery) -> list[str]:
    """Return conditions that hold for some of the records."""
    keywords = {word for (word,) in query.fetch("SELECT keyword_name FROM duckdb_keywords()")}
    types = pa.types
    scalars = {
        name: kind
        for name, kind in query.types.items()
        if types.is_string(kind) or types.is_integer(kind) or types.is_floating(kind)
    }
    named = [name for name in (LABEL_NAME, "width", *scalars, "_bytes") if name in query.quoted]
    examples = []
    for name in dict.fromkeys(named):
        column = query.quoted[name]
        is_plain = column == f'"{name}"' and name.isidentifier() and name.lower() not in keywords
        shown = name if is_plain else column
        if name in query.types and name not in scalars:
            continue
        if types.is_string(scalars[name]) if name in scalars else name == LABEL_NAME:
            found = query.fetch(
                f"SELECT {column} FROM records WHERE len({column}) <= 30 GROUP BY 1 HAVING "
                "20 * count(*) > (SELECT count(*) FROM records) ORDER BY count(*), 1 LIMIT 1"
            )
            examples += [f"{shown} = {literal(value)}" for (value,) in found]
        else:
            ((low, mean, high),) = query.fetch(
                f"SELECT min({column}), avg({column}), max({column}) FROM records "
                f"WHERE isfinite({column}::DOUBLE)"
            )
            if low is not None and low < high:
                bound = math.ceil(mean) if isinstance(low, int) else f"{mean:.6g}"
                examples.append(f"{shown} < {bound}")
        if len(examples) == 4:
            break
    return examples


def _merged(pieces: Iterable[TablePiece]) -> dict[str, pa.DataType]:
    """Return the features of all pieces, without those of conflicting types."""
    found: dict[str, pa.DataType] = {}
    conflicting = set()
    for one in dict.fromkeys(one for piece in pieces for one in piece.features):
        known = found.setdefault(one.name, one.type)
        if known == one.type:
            continue
        items = {_items(known), _items(one.type)}
        if len(items) > 1 and items != {pa.string(), pa.binary()}:
            conflicting.add(one.name)
        item = _items(known) if len(items) == 1 else pa.binary()
        is_list = pa.types.is_list(known) or pa.types.is_list(one.type)
        found[one.name] = pa.list_(item) if is_list else item
    return {name: one for name, one in sorted(found.items()) if name not in conflicting}


def _items(kind: pa.DataType) -> pa.DataType:
    """Return the type of a feature's values."""
    return kind.value_type if pa.types.is_list(kind) else kind


def _in_structs(
    path: str, value: str, kind: pa.DataType, depth: int = 0
) -> Iterator[tuple[str, str, pa.DataType]]:
    """Yield the path, the value in SQL and the type of all fields in structs of a column."""
    if pa.types.is_list(kind):
        item = f"x{depth}"
        for inner, part, part_kind in _in_structs(path, item, kind.value_type, depth + 1):
            yield inner, f"[{part} for {item} in {value}]", pa.list_(part_kind)
    elif pa.types.is_struct(kind):
        for field in kind:
            inner, part = f"{path}/{field.name}", _field_of(value, field.name)
            yield inner, part, field.type
            yield from _in_structs(inner, part, field.type, depth)


def _field_of(value: str, name: str) -> str:
    """Return a field of a struct in SQL."""
    return f"struct_extract({value}, {literal(name)})"


def _beginning(value: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return a value in SQL with the first items of lists at any depth, and with times as text."""
    types = pa.types
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        item, first = f"x{depth}", f"{value}[1:{_LISTED}]"
        inner = _beginning(item, kind.value_type, depth + 1)
        return first if inner == item else f"[{inner} for {item} in {first}]"
    if types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [_beginning(_field_of(value, one.name), one.type, depth) for one in kind]
        fields = ", ".join(f"{quoted(n)}: {part}" for n, part in zip(names, parts, strict=True))
        return f"CASE WHEN {value} IS NOT NULL THEN {{{fields}}} END"
    return f"CAST({value} AS VARCHAR)" if types.is_temporal(kind) else value


def _flat(value: str, kind: pa.DataType) -> str:
    """Return the texts of lists of any depth in SQL, as one list."""
    depth, innermost = 0, kind
    while innermost != innermost_type(kind):
        depth, innermost = depth + 1, innermost.value_type
    name = "VARCHAR" if pa.types.is_string(innermost) else "BLOB"
    texts = f"CAST({value} AS {name}{'[]' * depth})"
    return "flatten(" * (depth - 1) + texts + ")" * (depth - 1)


def _row_column(name: str) -> str:
    """Return a column of the pieces in SQL."""
    return f'p."{name.lstrip("_")}"'


def _of(name: str, record: RecordKey) -> str:
    return 'SELECT "#{}" FROM records WHERE "#shard" = {} AND _record = {}'.format(name, *record)
