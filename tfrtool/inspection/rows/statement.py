"""A query as text: whether it only reads, and which columns it may need."""

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.inspection.rows.database import connect
from tfrtool.inspection.rows.sql_errors import sql_message

_WRITES = re.compile(r'"type":"(?!SELECT_)([A-Z]+)_QUERY_NODE"')
"""What the syntax tree of a query has if a part of it, such as a WITH, isn't a SELECT."""

EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?!ANALYZE)", re.IGNORECASE)

_TREE = "json_serialize_sql($1, skip_null := true, skip_empty := true, skip_default := true)"

_HARMLESS_FUNCTIONS = ("generate_series", "range", "unnest")
"""Table functions that read no tables but their arguments."""

_ORDER_BY_ALL = frozenset({"class", "type", "columns", "query_location", "query_location_length"})
"""What the syntax tree of ORDER BY ALL or ``*`` has: it sorts by what is selected."""


def check_select(sql: str) -> None:
    """Check that a text is one SELECT statement; otherwise raise a `UsageError`."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
        kinds = [str(one.type).rpartition(".")[2] for one in statements]
        if kinds == ["MULTI"] and "pivot" in sql.casefold():  # which first finds its values
            return
        if kinds == ["SELECT"] and "with" in sql.casefold():
            kinds += _WRITES.findall(_syntax_tree(sql))
    except duckdb.Error as error:
        raise UsageError(f"invalid SQL: {sql_message(error)}") from error
    if kinds == ["SELECT"] and re.match(r"\s*show\b", sql, re.IGNORECASE):
        raise UsageError("SHOW is not supported", hint="use DESCRIBE records to list the columns")
    if kinds == ["EXPLAIN"] and (explained := EXPLAIN.match(sql)):
        check_select(sql[explained.end() :])
        return
    if kinds != ["SELECT"]:
        found = ", ".join(kinds) or "nothing"
        raise UsageError("invalid query", expected="a single SELECT statement", found=found)


def check_condition(sql: str) -> None:
    """Check that a text is an expression, whatever brackets it is put into."""
    expected = "an SQL expression, such as: label = 1 AND height > 64"
    if not sql.strip():
        raise UsageError("empty condition", expected=expected)
    # What closes a bracket that it has not opened fails in the other sort of brackets.
    for form in ("SELECT coalesce(\n{}\n, false)", "SELECT [\n{}\n]"):
        try:
            check_select(form.format(sql))
        except UsageError as error:
            fault = str(error).removeprefix("invalid SQL: ")
            line = re.search(r"^LINE (\d+):", str(error.__cause__), re.MULTILINE)
            if line and int(line[1]) > 2 + sql.count("\n"):  # behind the condition
                fault = "unbalanced brackets" if fault.endswith("')'") else "incomplete expression"
            what, found = f"invalid condition: {fault}", repr(sql)[:100]
            raise UsageError(what, expected=expected, found=found) from error


@dataclass(frozen=True, slots=True)
class Statement:
    """One SELECT, with the columns that it may need: too many at worst.

    Names are without regard to case.

    Attributes:
        sql: the text.
        names: all parts of all references to columns: of tables, columns and fields.
        stars: for nothing that stands for all columns, such as ``*``: the tables, and the
            columns that are left out.
    """

    sql: str
    names: frozenset[str]
    stars: tuple[tuple[frozenset[str], frozenset[str]], ...]

    @classmethod
    def parse(cls, sql: str, tables: Collection[str]) -> "Statement":
        """Read a SELECT over tables of these names; otherwise raise a `UsageError`."""
        check_select(sql)
        known = frozenset(map(str.casefold, tables))
        references = _References(known)
        try:
            tree = json.loads(_syntax_tree(EXPLAIN.sub("", sql, count=1)))
        except RecursionError:
            tree = {"error": True}
        if tree["error"]:  # PIVOT may be several statements
            return cls(sql, frozenset(), ((known, frozenset()),))
        references.read(tree)
        return cls(sql, frozenset(references.names), tuple(references.stars()))

    def needs(self, table: str, column: str) -> bool:
        """Return whether values of a column may be needed."""
        table, column = table.casefold(), column.casefold()
        stars = ((table in tables and column not in left_out) for tables, left_out in self.stars)
        return column in self.names or any(stars)

    def mentions(self, table: str, column: str) -> bool:
        """Return whether a column must exist, if only to be left out of all others."""
        is_in_star = any(table.casefold() in tables for tables, _ in self.stars)
        return is_in_star or column.casefold() in self.names


def _syntax_tree(sql: str) -> str:
    with contextlib.closing(connect()) as connection:
        ((tree,),) = connection.execute(f"SELECT {_TREE}", (sql,)).fetchall()
    return str(tree)


class _References:
    """What a syntax tree refers to.

    Attributes:
        names: the parts of names of columns.
    """

    def __init__(self, tables: frozenset[str]) -> None:
        self.names = set[str]()
        self._known = tables
        self._aliases: dict[str, set[str]] = {}
        self._qualified: list[tuple[str, frozenset[str]]] = []  # by names that may be a table's
        self._stars: list[tuple[frozenset[str], frozenset[str]]] = []

    def read(self, tree: Any) -> None:
        """Collect the references of a tree, without recursion: it may be deep."""
        todo = [(tree, self._known)]
        while todo:
            node, scope = todo.pop()
            if isinstance(node, list):
                todo += ((child, scope) for child in node)
            elif isinstance(node, dict):
                if node.get("type") == "SELECT_NODE":
                    scope = self._tables_in(node.get("from_table"))
                self._take(node, scope)
                todo += ((child, scope) for child in _children(node))

    def stars(self) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """Yield what stands for all columns of tables."""
        yield from self._stars
        for name, left_out in self._qualified:
            if name in self._aliases:
                yield frozenset(self._aliases[name]), left_out

    def _take(self, node: Mapping[str, Any], scope: frozenset[str]) -> None:
        nothing, table = frozenset[str](), str(node.get("table_name")).casefold()
        match node.get("type"):
            case "COLUMN_REF":
                parts = [part.casefold() for part in node["column_names"]]
                self.names.update(parts)
                self._qualified.append((parts[-1], nothing))  # a row as a value
            case "STAR":
                left_out = frozenset(map(str.casefold, node.get("exclude_list", ())))
                if "relation_name" in node:  # a table, or a struct
                    name = node["relation_name"].casefold()
                    self.names.add(name)
                    self._qualified.append((name, left_out))
                else:
                    self._stars.append((scope, left_out))
            case "POSITIONAL_REFERENCE":
                self._stars.append((scope, nothing))
            case "BASE_TABLE" if table in self._known:
                alias = node.get("alias", table).casefold()
                self._aliases.setdefault(alias, set()).add(table)
                if "column_name_alias" in node:  # by position
                    self._stars.append((frozenset({table}), nothing))
            case "TABLE_FUNCTION" if _function_name(node) not in _HARMLESS_FUNCTIONS:
                self._stars.append((self._known, nothing))
            case "PIVOT":
                self._stars.append((self._tables_in(node), nothing))
            case "JOIN":
                self.names.update(map(str.casefold, node.get("using_columns", ())))
                if node.get("ref_type") == "NATURAL":
                    self._stars.append((self._tables_in(node), nothing))

    def _tables_in(self, source: Any) -> frozenset[str]:
        """Return the tables of a FROM clause, without those of queries in it."""
        tables, todo = set[str](), [source]
        while todo:
            node = todo.pop()
            if isinstance(node, list):
                todo += node
            elif isinstance(node, dict) and not str(node.get("type")).endswith("_NODE"):
                tables.add(str(node.get("table_name")).casefold())
                todo += node.values()
        return frozenset(tables & self._known)


def _children(node: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what is below a node of a tree, but for ORDER BY ALL, which refers to no table."""
    for key, child in node.items():
        if key != "modifiers":
            yield child
            continue
        for modifier in child:
            orders = modifier.get("orders", ())
            yield {**modifier, "orders": [one for one in orders if not _is_order_by_all(one)]}


def _is_order_by_all(order: Mapping[str, Any]) -> bool:
    sorted_by: dict[str, Any] = order.get("expression", {})
    return sorted_by.get("type") == "STAR" and sorted_by.keys() <= _ORDER_BY_ALL


def _function_name(node: Mapping[str, Any]) -> str:
    return str(node.get("function", {}).get("function_name")).casefold()
