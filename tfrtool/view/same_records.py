"""The commands that select the records of a page from the same shards."""

import shlex
from contextlib import suppress
from dataclasses import replace

from tfrtool.errors import TfrtoolError, printable
from tfrtool.inspection.table.question_sql import QuestionSql, question_sql
from tfrtool.inspection.table.record_query import Question
from tfrtool.view.live import Live
from tfrtool.view.page_address import PageAddress
from tfrtool.view.tag_bar import copy_command


def same_records(live: Live, asked: PageAddress) -> list[tuple[str, str]] | None:
    """Return commands with their titles; none if they can't ask the same, None for all records."""
    if replace(asked.question, sort="", descending=False) == Question():
        return None
    found, sql = live.found, None
    with suppress(TfrtoolError):
        sql = live.ask(question_sql, asked.question, found.label)
    if sql is None:
        return []
    return [
        ("Query", _query_command(live, sql)),
        ("Filter", copy_command("filter", found, "filtered", "--where", sql.condition)),
    ]


def _query_command(live: Live, sql: QuestionSql) -> str:
    shards = [str(one) for one in live.found.arguments]
    order = f" ORDER BY {sql.order}" if sql.order else ""
    select = f"SELECT * FROM records WHERE {sql.condition}{order}"
    named = [f"./{one}" if one.startswith("-") else one for one in shards]
    return printable(shlex.join(["tfrtool", "query", *named, select]))
