"""Questions about the rows of a `RecordTable`, answered by DuckDB, which reads no other file."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.arrow.columns import PLACES
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.inspection.rows.database import connect, literal, quoted, unique_names
from tfrtool.inspection.rows.sql_errors import as_sql_error
from tfrtool.inspection.rows.statement import check_condition
from tfrtool.inspection.table.record_table import OWN, SIDES, RecordTable, TableFeature, TablePiece

IMAGE_COLUMNS = ("width", "height", "brightness", "entropy")
"""Columns of images that conditions can name, unless a feature has that name."""

PIXELS = (64, 128, 256, 512, 1024, 2048)
BYTES = (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
"""Groups of sizes, by pixels of the longer side or bytes of a record; 0 is beyond the last."""

MOST_BITS = 3
"""Bits in which the hashes of similar images differ at most."""

ROW = '"#shard", _record, _offset, _bytes, "#classes", "#width", "#height", "#faults", "#marked"'
ORDER = '"#shard", _record'
_HIDDEN = (*IMAGE_COLUMNS, "hash", "digest", "shard", "classes", "faults", "marked")
_TYPES = {"int": "BIGINT", "float": "FLOAT", "text": "VARCHAR", "bytes": "BLOB"}
_READ = "hive_partitioning = false"
"""Without it, a folder named ``shard=0`` above the file replaces the column of that name."""

_LISTED, _VALUES = 9, 1000
"""Values of a list for a table, and of a facet; the most frequent ones."""

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
        marked: whether a record is marked.
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
    marked: bool
    note: str = ""  # why it is in the list


class Answer(NamedTuple):
    """A page of the matching records.

    Attributes:
        total: number of matching records.
        rows: those of the page.
        values: for each row, the values of its first features, if asked for.
        facets: for each facet, values with the number of records that match if it is chosen.
    """

    total: int = 0
    rows: list[Row] = []  # noqa: RUF012 - tuples don't share it
    values: list[tuple[Any, ...]] = []  # noqa: RUF012
    facets: dict[str, list[tuple[Any, int]]] = {}  # noqa: RUF012


class RecordQuery:
    """A connection to the rows of a table, as the view ``records``.

    A feature is a column with its own name. Text is VARCHAR, other bytes are BLOB. There are also
    `PLACES`, ``label_name`` if class names are known, and `IMAGE_COLUMNS` if there are images.

    Attributes:
        features: columns that are features.
        quoted: all columns that conditions and sorting can name, with their names in SQL.
    """

    def __init__(self, table: RecordTable) -> None:
        self.has_images = table.has_images
        self.features = _merged(table.pieces)
        extra = [LABEL_NAME] * bool(table.class_names) + [*IMAGE_COLUMNS] * self.has_images
        extra = [*PLACES, *(name for name in extra if name not in self.features)]
        shown = unique_names([*(f"#{name}" for name in _HIDDEN), *extra, *self.features])
        shown = [quoted(name) for name in shown[len(_HIDDEN) :]]
        names = dict(zip([*extra, *self.features], shown, strict=True))
        self.quoted = {name: names[name] for name in [*self.features, *extra]}
        self._connection = connect(table.folder)
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
            f"{''.join(self._value(number, held) for number in range(len(self.features)))} "
            f"FROM read_parquet([{', '.join(map(literal, files))}], {_READ})"
            for (held, start), files in groups.items()
        ]
        # Features may have any name, such as path: here they are v0, v1 ...
        sources = {"_shard": "s.path", "_split": "s.split"}
        parts = [f"{sources.get(name, _row_column(name))} AS {names[name]}" for name in extra]
        hidden = (*IMAGE_COLUMNS, "hash", "digest", "shard")
        parts += [f'{_row_column(name)} AS "#{name}"' for name in hidden]
        parts += [f"p.v{number} AS {names[name]}" for number, name in enumerate(self.features)]
        parts += [
            'coalesce(p.classes, []) AS "#classes"',
            "coalesce(f.kinds, CASE WHEN p.fault IS NULL OR s.verified THEN [] ELSE [p.fault] END) "
            'AS "#faults"',
            'm.marked IS NOT NULL AS "#marked"',
        ]
        self._connection.execute(
            f"CREATE VIEW records AS SELECT {', '.join(parts)} "
            f"FROM ({' UNION ALL '.join(selects)}) p JOIN shards s USING (shard) "
            "LEFT JOIN faults f USING (shard, record) LEFT JOIN marks m USING (shard, record)"
        )

    def _value(self, index: int, features: tuple[TableFeature, ...]) -> str:
        """Return a feature in SQL, from pieces that may have another form of it, or not have it."""
        (name, wanted), value = [*self.features.items()][index], "NULL"
        for number, feature in enumerate(features):
            if feature.name == name:
                value = f"c{number}"
                if feature.base != wanted.base:
                    value = (
                        f"[encode(x) for x in {value}]" if feature.is_list else f"encode({value})"
                    )
                if wanted.is_list and not feature.is_list:
                    value = f"CASE WHEN c{number} IS NULL THEN NULL ELSE [{value}] END"
        kind = _TYPES[wanted.base] + "[]" * wanted.is_list
        return f"CAST({value} AS {kind}) AS v{index}, "

    def fetch(self, sql: str, condition: str = "") -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT; errors are about the condition in it."""
        import duckdb

        try:
            return self._connection.execute(sql).fetchall()  # type: ignore[no-any-return]
        except duckdb.Error as error:
            raise as_sql_error(error, self.quoted, condition) from error

    def matching(self, question: Question) -> str:
        """Return the WHERE of a question."""
        parts = ["true"]
        if question.where.strip():
            check_condition(question.where)
            parts.append(f"(\n{question.where}\n)")
        if question.text.strip():
            parts.append(self._contains(literal(question.text.strip().lower())))
        if question.split is not None:
            parts.append(f"coalesce(_split, '') = {literal(question.split)}")
        if question.label is not None:
            parts.append(f'list_contains("#classes", {literal(question.label)})')
        if question.shard is not None:
            parts.append(f'"#shard" = {question.shard}')
        if question.record is not None:
            parts.append('"#shard" = {} AND _record = {}'.format(*question.record))
        if question.fault is not None:
            kind = f'list_contains("#faults", {literal(question.fault)})'
            parts.append('len("#faults") > 0' if question.fault == "any" else kind)
        if question.size is not None:
            parts.append(f"{self.size_group} = {question.size}")
        if question.copies == "any":
            again = 'SELECT "#digest" FROM records GROUP BY 1 HAVING count(*) > 1'
            parts.append(f'"#digest" IN ({again})')
        elif isinstance(question.copies, tuple):
            parts.append(f'"#digest" = ({_of("digest", question.copies)})')
        if question.like is not None:
            parts.append(f'bit_count(xor("#hash", ({_of("hash", question.like)}))) <= {MOST_BITS}')
        if question.marked is not None:
            parts.append(f'"#marked" = {question.marked}')
        return f"WHERE {' AND '.join(parts)}"

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
            first = '"#digest", ' if question.copies == "any" else ""
            return f"ORDER BY {first}{ORDER}"
        if question.sort not in self.quoted:
            hint = suggestion(question.sort, self.quoted, "columns")
            raise UsageError(f"no column {question.sort!r}", hint=hint)
        way = "DESC" if question.descending else "ASC"
        return f"ORDER BY {self.quoted[question.sort]} {way} NULLS LAST, {ORDER}"

    def _contains(self, part: str) -> str:
        texts = [('"#classes"', TableFeature("", "text", True))]
        texts += [(self.quoted[name], feature) for name, feature in self.features.items()]
        parts = []
        for column, feature in texts:
            if feature.base in ("text", "bytes"):
                value = "x" if feature.is_list else column
                shown = value if feature.base == "text" else f"try(decode({value}))"
                found = f"contains(lower({shown}), {part})"
                found = f"list_bool_or([{found} for x in {column}])" if feature.is_list else found
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
    features: int = 0,
    facets: bool = False,
) -> Answer:
    """Return a page of the records of a question.

    Args:
        table: the rows.
        question: which records.
        start: the first one to return, from 0.
        count: how many to return.
        features: number of features whose values are returned.
        facets: whether to count facets.

    Raises:
        UsageError: the condition is wrong, or there is no such column.
        ShardError: the condition fails at a value, or needs too much memory.
    """
    query, condition = query_of(table), question.where
    where, order = query.matching(question), query.order(question)
    ((total,),) = query.fetch(f"SELECT count(*) FROM records {where}", condition)
    rest = f"FROM records {where} {order} LIMIT {count} OFFSET {start}"
    rows = [Row(*values) for values in query.fetch(f"SELECT {ROW} {rest}", condition)]
    shown = [
        query.quoted[name] + f"[1:{_LISTED}]" * one.is_list
        for name, one in list(query.features.items())[:features]
    ]
    values = query.fetch(f"SELECT {', '.join(shown)} {rest}", condition) if shown else []
    counts = {}
    for name, value in (
        ("split", "coalesce(_split, '')"),
        ("label", 'unnest("#classes")'),
        ("shard", '"#shard"'),
        ("fault", 'unnest("#faults")'),
        ("size", query.size_group),
        ("marked", '"#marked"'),
    ) if facets else ():  # fmt: skip
        others = query.matching(replace(question, **{name: None}))  # type: ignore[arg-type]
        counts[name] = query.fetch(
            f"SELECT value, count(*) FROM (SELECT {value} AS value FROM records {others}) "
            f"WHERE value IS NOT NULL GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT {_VALUES}",
            condition,
        )
    if facets and query.has_images:
        others = query.matching(replace(question, copies="any"))
        counts["copies"] = [("any", query.fetch(f"SELECT count(*) FROM records {others}")[0][0])]
    return Answer(total, rows, values, counts)


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


def columns_of(table: RecordTable) -> tuple[list[str], list[str], list[str]]:
    """Return the features, all columns, and conditions that hold for some of the records."""
    query = query_of(table)
    keywords = {word for (word,) in query.fetch("SELECT keyword_name FROM duckdb_keywords()")}
    scalars = {n: f for n, f in query.features.items() if not f.is_list and f.base != "bytes"}
    named = [name for name in (LABEL_NAME, "width", *scalars, "_bytes") if name in query.quoted]
    examples = []
    for name in dict.fromkeys(named):
        column = query.quoted[name]
        is_plain = column == f'"{name}"' and name.isidentifier() and name.lower() not in keywords
        shown = name if is_plain else column
        if name in query.features and name not in scalars:
            continue
        if scalars[name].base == "text" if name in scalars else name == LABEL_NAME:
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
    return list(query.features), list(query.quoted), examples


def _merged(pieces: Iterable[TablePiece]) -> dict[str, TableFeature]:
    """Return the features of all pieces, without those of conflicting types."""
    found: dict[str, TableFeature] = {}
    conflicting = set()
    for one in dict.fromkeys(one for piece in pieces for one in piece.features):
        known = found.setdefault(one.name, one)
        bases = {known.base, one.base}
        if len(bases) > 1 and bases != {"text", "bytes"}:
            conflicting.add(one.name)
        base = known.base if len(bases) == 1 else "bytes"
        found[one.name] = TableFeature(one.name, base, known.is_list or one.is_list)
    return {name: one for name, one in sorted(found.items()) if name not in conflicting}


def _row_column(name: str) -> str:
    """Return a column of the pieces in SQL."""
    return f'p."{name.lstrip("_")}"'


def _of(name: str, record: RecordKey) -> str:
    return 'SELECT "#{}" FROM records WHERE "#shard" = {} AND _record = {}'.format(name, *record)
