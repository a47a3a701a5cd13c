"""DuckDB's errors in the words of a query."""

import re
from collections.abc import Iterable, Sequence

from tfrtool.errors import ShardError, UsageError, human_bytes, suggestion
from tfrtool.storage.limits import MAX_SQL_MEMORY

_MESSAGE = 300
"""Characters of DuckDB's message, which may quote a value of any length."""

_END = 1000
"""Characters from each end of a message that are searched for its meaning."""

_OF_QUERY = ("Parser", "Syntax", "Binder", "Catalog", "Permission", "NotImplemented")
"""DuckDB's errors that are not about a value in a record."""

_MEANINGS = (
    (r'syntax error at or near "(.*)"', "syntax error near '{0}'"),
    (
        r"[Cc]olumn \"(.+)\" must appear in the GROUP BY clause or (?:must be part of|be used).*",
        "column '{0}' must be in GROUP BY or in an aggregate such as any_value({0})",
    ),
    (
        r"No function matches the given .*types 'array_extract\((.*?), .*\)'\. .*",
        "a value of type {0} is not a list, so it has no elements",
    ),
    (r'.*column "(.+)" was not found because the FROM.*', "no column '{0}'; add FROM records"),
    (r'.*[Cc]olumn "(.+)"(?: in \w+ list)? not found.*', "no column '{0}'"),
    (r'.*does not have a column named "(.+)".*', "no column '{0}'"),
    (r"(?:\w+ )*Function with name (.+) does not exist!?", "no function '{0}'"),
    (r"Table with name \"?(.+?)\"? does not exist.*", "no table '{0}'"),
    (r'Referenced table "(.+)" not found!?', "no table '{0}'"),
    (
        r"No function matches the given .*types '(.+?)(\(.*BLOB.*\))'\. .*",
        "invalid argument types for '{0}': {1}; use try(decode(x)) to make text of bytes",
    ),
    (
        r"[Ii]nvalid byte encountered in STRING -> BLOB conversion of string \"(.*)\"\. .*",
        "bytes can't be compared with '{0}'; use try(decode(x)) to make text of bytes",
    ),
    (
        r"(?:No function matches the given .*types '|Could not choose .*call \")"
        r"(.+?)(\(.*\))['\"]\. .*",
        "invalid argument types for '{0}': {1}; use CAST to convert them",
    ),
    (
        r"Unimplemented type for cast \((?:BLOB -> (.*?)|(.*) -> BLOB)\).*",
        "bytes can't be converted or compared; use decode() to make text of them first",
    ),
    (
        r"Unimplemented type for cast \((\S+) -> (\S+)\).*",
        "a value of type {0} can't be converted to {1}",
    ),
    (
        r"Division by zero in expression (\(.*\))\. .*",
        "division by zero in {0}; use TRY(...) to get NULL instead",
    ),
    (
        r"Cannot extract field '(.+)' from expression \"(.+)\" because it is not a struct.*",
        "{1} is not a struct, so it has no field '{0}'",
    ),
    (r"Failure in decode: .*", "bytes are not UTF-8 text; use try(decode()) to get NULL instead"),
    (r"[Ss]calar function .* threw an execution error, .* Error: (.*)", "{0}"),
    (
        r'(?:"maximum_object_size"|[Mm]aximum line size) of (\d+) bytes exceeded.*',
        "a row is longer than {0} bytes",
    ),
    (
        r'Cannot access file "(.*)" - .*',
        "can't read '{0}': only the records, and files of tfrtool query --with, can be read",
    ),
)
"""DuckDB's messages, and the same in the terms of a query; others are shown as they are."""


_COMPARED = re.compile(r"could not convert string '(.*)' to ((?:U?INT|FLOAT|DOUBLE)\w*)", re.DOTALL)

_NOT_BYTES = re.compile(r"bytes can't be compared with ('.*');", re.DOTALL)

_OPERATOR = (
    r"""("[^"]+"|\b\w+\b)\s*(?:[=<>!]{1,2}|(?:NOT\s+)?IN\b|(?:NOT\s+)?BETWEEN\b)"""
    r"""\s*\(?\s*(?:'[^']*'\s*,\s*)*"""
)
"""A column and what compares it with texts."""


def memory_error() -> ShardError:
    """Return the error for a query that needs more memory than its process may use."""
    return ShardError(f"the query needs more than {human_bytes(MAX_SQL_MEMORY)} of memory")


def as_sql_error(
    error: Exception, columns: Iterable[str], sql: str = "", tables: Sequence[str] = ("records",)
) -> Exception:
    """Return DuckDB's error as one of ours, with a hint for an unknown name.

    Args:
        error: what DuckDB raised; other errors are returned as they are.
        columns: the names of the columns, for the hint.
        sql: the query.
        tables: the names of the tables.
    """
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return memory_error()
    if not isinstance(error, duckdb.Error | OSError):  # Arrow's, which quotes DuckDB's
        return error
    kinds = tuple(getattr(duckdb, f"{name}Exception") for name in _OF_QUERY)
    # No value can be cast from one of these types to the other.
    is_wrong = isinstance(error, kinds) or "Unimplemented type for cast" in str(error)
    what = sql_message(error)
    if found := _NOT_BYTES.match(what):  # a text of the query, or of a record
        is_wrong = found[1] in sql
    kind = UsageError if is_wrong else ShardError
    if compared := _COMPARED.match(what):
        text, dtype = compared.groups()
        literal = re.escape(f"'{text}'")
        name = re.search(_OPERATOR + literal, sql, re.IGNORECASE)
        if name is not None or re.search(literal, sql):
            if name is None:
                return UsageError(f"'{text}' is not a valid {dtype}")
            column = name[1]
            names = [one for one in columns if one == "label_name"]
            hint = "compare with label_name instead" if names else None
            return UsageError(
                f"{column} is {dtype}, and can't be compared with '{text}'", hint=hint
            )
    return kind(what, hint=_hint(what, _ends(str(error)), columns, sql, tables))


def sql_message(error: Exception) -> str:
    """Return the message of DuckDB's error, in bounded length."""
    text = re.sub(r"^(\w+ )+Error: ", "", _ends(str(error).strip().partition("\n")[0]))
    text = text.rstrip("!. ")
    for pattern, meaning in _MEANINGS:
        if found := re.fullmatch(pattern, text, re.DOTALL):
            text = meaning.format(*found.groups()).replace("'~~'", "'LIKE'")
            break
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}..."


def _ends(text: str) -> str:
    """Return the ends of a text that may quote a long value: the expressions are quadratic."""
    return text if len(text) <= 2 * _END else f"{text[:_END]}...{text[-_END:]}"


def _hint(
    what: str, error: str, columns: Iterable[str], sql: str, tables: Sequence[str]
) -> str | None:
    if unknown := re.fullmatch(r"no table '(.*)'", what):
        return suggestion(unknown[1], tables, "tables") if len(tables) > 1 else "use FROM records"
    if near := re.search(r'Function with .*\n+Did you mean "([^"]+)"', error):
        return f"did you mean {near[1]!r}?"
    unknown = re.fullmatch(r"no column '(.*)'", what)
    if unknown is None or "Values list" in error:  # of a subquery
        return None
    candidates = re.findall(r'(?<=[:,] )"([^"\n]+)"', error.partition("\nCandidate ")[2])
    names = [*sorted(columns, key=lambda name: name[:1] == "_"), *candidates]
    typed = dict.fromkeys(name if name.isidentifier() else f'"{name}"' for name in names)
    hint = suggestion(unknown[1], typed, "columns")
    name = re.escape(unknown[1])
    is_value = re.search(rf'"{name}"|(?:=|<|>|\blike|\bin\s*\(|,)\s*{name}\b', sql, re.IGNORECASE)
    if is_value and hint and hint.startswith("columns"):
        return f"use single quotes for a string: '{unknown[1]}'"
    return hint
