"""A query as text: whether it only reads, and which columns it may need."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.inspection.rows.sql_errors import sql_message

_WRITES = re.compile(r'"type":"(?!SELECT_)([A-Z]+)_QUERY_NODE"')
"""What the syntax tree of a query has if a part of it, such as a WITH, isn't a SELECT."""

EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?!ANALYZE)", re.IGNORECASE)

_TREE = "json_serialize_sql($1, skip_null := true, skip_empty := true, skip_default := true)"

_HARMLESS_FUNCTIONS = ("generate_series", "range", "unnest")
"""Table functions that read no tables but their arguments."""

_ORDER_BY_ALL = frozenset({"class", "type", "columns", "query_location", "query_location_length"})
"""What the syntax tree of ORDER BY ALL or ``*`` has: it sorts by what is selected."""


def check_select(connection: Any, sql: str) -> None:
    """Check that a text is one SELECT statement; otherwise raise a `UsageError`.

    ``connection`` is any of DuckDB's: to open one takes longer than to parse a query.
    """
    import duckdb

    try:
        statements = connection.extract_statements(sql)
        kinds = [str(one.type).rpartition(".")[2] for one in statements]
        if kinds == ["MULTI"] and "pivot" in sql.casefold():  # which first finds its values
            return
        if kinds == ["SELECT"] and "with" in sql.casefold():
            kinds += _WRITES.findall(_syntax_tree(connection, sql))
    except duckdb.Error as error:
        raise UsageError(f"invalid SQL: {sql_message(error)}") from error
    if kinds == ["SELECT"] and re.match(r"\s*show\b", sql, re.IGNORECASE):
        raise UsageError("SHOW is not supported", hint="use DESCRIBE records to list the columns")
    if kinds == ["EXPLAIN"] and (explained := EXPLAIN.match(sql)):
        check_select(connection, sql[explained.end() :])
        return
    if kinds != ["SELECT"]:
        found = ", ".join(kinds) or "nothing"
        raise UsageError("invalid query", expected="a single SELECT statement", found=found)


def check_condition(connection: Any, sql: str) -> None:
    """Check that a text is an expression, whatever brackets it is put into."""
    expected = "an SQL expression, such as: label = 1 AND height > 64"
    if not sql.strip():
        raise UsageError("empty condition", expected=expected)
    # What closes a bracket that it has not opened fails in the other sort of brackets.
    for form in ("SELECT coalesce(\n{}\n, false)", "SELECT [\n{}\n]"):
        try:
            check_select(connection, form.format(sql))
        except UsageError as error:
            fault = str(error).removeprefix("invalid SQL: ")
            line = re.search(r"^LINE (\d+):", str(error.__cause__), re.MULTILINE)
            if line and int(line[1]) > 2 + sql.count("\n"):  # behind the condition
                fault = "unbalanced brackets" if fault.endswith("')'") else "incomplete expression"
            what, found = f"invalid condition: {fault}", repr(sql)[:100]
            raise UsageError(what, expected=expected, found=found) from error


Star = tuple[frozenset[str], frozenset[str]]
"""What stands for all columns, such as ``*``: of these tables, without these columns."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One SELECT, with the columns that it may need: too many at worst.

    Names are without regard to case.

    Attributes:
        sql: the text.
        names: all parts of all references to columns: of tables, columns and fields.
        stars: what stands for all columns of tables.
    """

    sql: str
    names: frozenset[str]
    stars: frozenset[Star]

    @classmethod
    def parse(cls, connection: Any, sql: str, tables: Collection[str]) -> "Statement":
        """Read a SELECT over tables of these names; otherwise raise a `UsageError`."""
        check_select(connection, sql)
        known = frozenset(map(str.casefold, tables))
        try:
            tree = json.loads(_syntax_tree(connection, EXPLAIN.sub("", sql, count=1)))
        except RecursionError:
            tree = {"error": True}
        if tree["error"]:  # PIVOT may be several statements
            return cls(sql, frozenset(), frozenset({(known, frozenset())}))
        nodes, names = [*_nodes(tree, known)], set[str]()
        aliases: dict[str, frozenset[str]] = {}
        for node, _ in nodes:
            parts = (*node.get("column_names", ()), *node.get("using_columns", ()))
            names.update(map(str.casefold, (*parts, node.get("relation_name", ""))))
            if node.get("type") == "BASE_TABLE":
                alias = node.get("alias", node["table_name"]).casefold()
                aliases[alias] = aliases.get(alias, frozenset()) | _tables_in(node, known)
        stars = (star for one in nodes for star in _stars(*one, aliases, known))
        return cls(sql, frozenset(names), frozenset(stars))

    def needs(self, table: str, column: str) -> bool:
        """Return whether values of a column may be needed."""
        table, column = table.casefold(), column.casefold()
        stars = ((table in tables and column not in left_out) for tables, left_out in self.stars)
        return column in self.names or any(stars)

    def mentions(self, table: str, column: str) -> bool:
        """Return whether a column must exist, if only to be left out of all others."""
        is_in_star = any(table.casefold() in tables for tables, _ in self.stars)
        return is_in_star or column.casefold() in self.names


def _syntax_tree(connection: Any, sql: str) -> str:
    ((tree,),) = connection.execute(f"SELECT {_TREE}", (sql,)).fetchall()
    return str(tree)


def _nodes(tree: Any, known: frozenset[str]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield all nodes of a tree, which may be deep, with the tables that ``*`` means there."""
    todo = [(tree, known)]
    while todo:
        node, scope = todo.pop()
        if isinstance(node, list):
            todo += ((child, scope) for child in node)
        elif isinstance(node, dict):
            if node.get("type") == "SELECT_NODE":
                scope = _tables_in(node.get("from_table"), known)
            orders = [one for part in node.get("modifiers", ()) for one in part.get("orders", ())]
            for order in orders:
                if order["expression"].keys() <= _ORDER_BY_ALL:
                    order.clear()
            yield node, scope
            todo += ((child, scope) for child in node.values())


def _stars(
    node: Mapping[str, Any],
    scope: frozenset[str],
    aliases: Mapping[str, frozenset[str]],
    known: frozenset[str],
) -> Iterator[Star]:
    """Yield what stands for all columns of tables in a node, without what is below it."""
    nothing = frozenset[str]()
    left_out = frozenset(map(str.casefold, node.get("exclude_list", ())))
    match node.get("type"):
        case "COLUMN_REF":  # perhaps a row as a value
            yield aliases.get(node["column_names"][-1].casefold(), nothing), nothing
        case "STAR" if "relation_name" in node:  # of a table, or of a struct
            yield aliases.get(node["relation_name"].casefold(), nothing), left_out
        case "STAR" | "POSITIONAL_REFERENCE":
            yield scope, left_out
        case "TABLE_FUNCTION" if _function_name(node) not in _HARMLESS_FUNCTIONS:
            yield known, nothing
        case "PIVOT":
            yield _tables_in(node, known), nothing
        case _ if node.get("ref_type") == "NATURAL" or "column_name_alias" in node:  # by position
            yield _tables_in(node, known), nothing


def _tables_in(source: Any, known: frozenset[str]) -> frozenset[str]:
    """Return the tables of a FROM clause, without those of queries in it."""
    tables, todo = set[str](), [source]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, dict) and not str(node.get("type")).endswith("_NODE"):
            tables.add(str(node.get("table_name")).casefold())
            todo += node.values()
    return frozenset(tables & known)


def _function_name(node: Mapping[str, Any]) -> str:
    return str(node.get("function", {}).get("function_name")).casefold()
