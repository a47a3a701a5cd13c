"""A query in two: what is asked of each record alone, and what of all the answers together."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

from tfrtool.examples.arrow.columns import PLACES
from tfrtool.inspection.rows.sandbox import Sandbox

_RECORD = frozenset(
    {"COLUMN_REF", "CONSTANT", "FUNCTION", "COMPARISON", "CONJUNCTION", "OPERATOR"}
    | {"CAST", "TYPE", "BETWEEN", "CASE", "LAMBDA"}
)
"""What an expression of one record is made of, in the words of DuckDB's parser."""

_KNOWN = _RECORD | {"COLLATE", "WINDOW"}

_STAR = "SELECT * FROM records"
_STAR_MORE = ("replace_list", "rename_list", "columns", "expr")

_FUNCTIONS = """
SELECT function_name, bool_and(function_type = 'scalar' AND stability = 'CONSISTENT'),
bool_or(function_type = 'aggregate') FROM duckdb_functions() GROUP BY function_name
"""

_Node = dict[str, Any]


def split_query(sandbox: Sandbox, sql: str) -> tuple[str, str] | None:
    """Return two SELECTs that do what one does: the second is over what the first one gives.

    The first one gives, for each record that is asked for, the largest expressions of one record.
    The second one has columns in their place, and no WHERE; both are over a table `records`. It
    may not be possible to bind them, and then the query can't be split. None for joins,
    subqueries, and what else does not go through `records` just once.
    """
    node, blank = _parsed(sandbox, sql), _parsed(sandbox, _STAR)
    table = node.get("from_table", {})
    plain = {**node, **{key: blank[key] for key in ("cte_map", "sample")}} == node
    if not plain or {**table, "alias": "", "column_name_alias": []} != blank["from_table"]:
        return None
    items: list[_Node] = []
    for item in node["select_list"]:
        alone = {**blank, "select_list": [item], "from_table": table}
        if item["class"] != "STAR":
            items.append(item)
        elif not any(map(item.get, _STAR_MORE)):
            items += [_column(name) for name, _ in sandbox.types(_text(sandbox, alone))]
    node["select_list"] = items
    names = [name for name, _ in sandbox.types(sql)]
    kinds = {one["class"] for one in _nodes(node) if "class" in one}
    if not kinds <= _KNOWN or len(items) != len(names):
        return None
    every = sandbox.types(_text(sandbox, {**blank, "from_table": table}))
    halves = _Halves(sandbox, node, {name.casefold() for name, _ in every})
    if halves.ambiguous:
        return None
    rest = halves.rest() | {"from_table": blank["from_table"]}
    for item, name in zip(rest["select_list"], names, strict=True):
        item["alias"] = name
    where = None if rest["where_clause"] else node["where_clause"]
    asked = [*halves.asked.values()] or [_column(PLACES[1], PLACES[1])]
    first = {**blank, "select_list": asked, "from_table": table, "where_clause": where}
    return _text(sandbox, first), _text(sandbox, rest)


def _parsed(sandbox: Sandbox, sql: str) -> _Node:
    """Return the syntax tree of a SELECT, without where in the text things are."""
    ((text,),) = sandbox.rows("SELECT json_serialize_sql($1)", sql)
    tree = json.loads(
        text, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if "query_loc" not in k}
    )
    node: _Node = tree["statements"][0]["node"]
    return node


def _text(sandbox: Sandbox, node: _Node) -> str:
    tree = json.loads(sandbox.rows("SELECT json_serialize_sql($1)", _STAR)[0][0])
    tree["statements"][0]["node"] = node
    ((text,),) = sandbox.rows("SELECT json_deserialize_sql($1::JSON)", json.dumps(tree))
    return str(text)


def _nodes(value: Any) -> Iterator[_Node]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _nodes(one)


def _column(name: str, alias: str = "") -> _Node:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": alias, "column_names": [name]}


def _key(node: _Node) -> str:
    return json.dumps({**node, "alias": ""}, sort_keys=True)


class _Halves:
    """What is asked of each record, as it is found in a query.

    Attributes:
        asked: expressions of one record, with the names of their columns.
        ambiguous: whether a name may mean a column of the records, or something else.
    """

    def __init__(self, sandbox: Sandbox, node: _Node, columns: set[str]) -> None:
        functions = sandbox.rows(_FUNCTIONS)
        self._scalar = {name for name, scalar, _ in functions if scalar}
        self._aggregates = {name for name, _, aggregate in functions if aggregate}
        self._node, self._prefix = node, f"x{secrets.token_hex(8)}_"
        self._aliases = {item["alias"].casefold() for item in node["select_list"]} - columns
        self.asked: dict[str, _Node] = {}
        self.ambiguous = any(
            alias in columns and item.get("column_names", [""])[-1].casefold() != alias
            for item in node["select_list"]
            if (alias := item["alias"].casefold())
        )
        grouped = node["group_expressions"] or node["aggregate_handling"] != "STANDARD_HANDLING"
        self._free = not grouped and not any(map(self._aggregate, _nodes(node)))
        keys = [*node["select_list"], *node["group_expressions"]]
        self._keys = {_key(one) for one in keys if self._of_record(one)}

    def rest(self) -> _Node:
        """Return what is left of the query; there is a WHERE if it is not one of each record."""
        node, whole = self._node, ("group_expressions", "where_clause")
        if node["where_clause"] and self._of_record(node["where_clause"], constant=True):
            node = {**node, "where_clause": None}
        return {key: self._put(value, self._free or key in whole) for key, value in node.items()}

    def _aggregate(self, node: _Node) -> bool:
        return node.get("class") == "FUNCTION" and node["function_name"] in self._aggregates

    def _of_record(self, node: _Node, *, constant: bool = False) -> bool:
        """Return whether an expression depends on one record, and on nothing else."""
        for one in _nodes(node):
            kind = one.get("class", "CAST")
            if kind == "COLUMN_REF":
                constant = True
                if one["column_names"][0].casefold() in self._aliases:
                    return False
            if kind not in _RECORD or (
                kind == "FUNCTION" and one["function_name"] not in self._scalar
            ):
                return False
        return constant

    def _put(self, node: Any, free: bool) -> Any:
        """Put columns in the place of expressions of one record.

        Of groups only what they are made by can be told; in aggregates all is ``free``.
        """
        if isinstance(node, list):
            return [self._put(one, free) for one in node]
        if not isinstance(node, dict):
            return node
        if "class" in node and (free or _key(node) in self._keys) and self._of_record(node):
            made = {**node, "alias": f"{self._prefix}{len(self.asked)}"}
            return _column(self.asked.setdefault(_key(node), made)["alias"], node["alias"])
        free = free or self._aggregate(node)
        return {key: self._put(value, free) for key, value in node.items()}
