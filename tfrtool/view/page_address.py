"""What the addresses of the viewer's pages ask for."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tfrtool.errors import UsageError
from tfrtool.inspection.table.column_ranges import ColumnRange
from tfrtool.inspection.table.record_query import Question, RecordKey, Row
from tfrtool.view.findings import Findings
from tfrtool.view.marks import MARKED, parse_tag

THUMBS = {"s": 96, "m": 160, "l": 320}
"""Longest side of thumbnails, in pixels."""

_PAGE = {"s": 120, "m": 60, "l": 24, "table": 100}
"""Records per page."""

_KNOWN = ("where", "was", "text", "split", "label", "shard", "fault", "size", "copies", "like",
          "marked", "tagged", "tag", "prediction", "predicted", "confidence", "sort", "descending",
          "page", "n", "thumb", "view", "all")  # fmt: skip

IS, IS_NULL = "is:", "null:"
"""What the parameters begin with that ask for a value of a column, and for none."""

IN, BYTES_IN = "in:", "bytes:"
"""What the parameters begin with that ask for a range of a column's values, or of their sizes."""

_MOST_VALUES = 20
"""Columns whose values an address may ask for."""


class PageAddress:
    """What an address asks for.

    Attributes:
        parameters: its query parameters, without unknown and empty ones.
        question: the same as a question.
        page: number of the page, from 1.
        tag: the tag that the checkboxes of records stand for.
        thumb: size of thumbnails.
        count: records per page.
    """

    def __init__(self, query: Mapping[str, str], found: Findings) -> None:
        """Read the parameters; `UsageError` if a number or the name of a record isn't one."""
        self.parameters = {
            name: query[name].replace("\0", "")
            for name in _KNOWN
            if name in query and (query[name].strip() or name == "split")
        }
        of_columns = (IS, IS_NULL, IN, BYTES_IN)
        chosen = [one for one in query if one.startswith(of_columns)][:_MOST_VALUES]
        self.parameters |= {name: query[name] for name in chosen}
        parameters = self.parameters
        find = found.record_names.find
        copies, confidence = parameters.get("copies"), parameters.get("confidence")
        self.tag = parse_tag(parameters.get("tag", MARKED))
        self.page = max(1, min(number_of(parameters.get("page", "1")), 10**9))
        self.question = Question(
            where=parameters.get("where", ""),
            text=parameters.get("text", ""),
            split=parameters.get("split"),
            label=parameters.get("label"),
            shard=number_of(parameters["shard"]) if "shard" in parameters else None,
            fault=parameters.get("fault"),
            size=number_of(parameters["size"]) if "size" in parameters else None,
            copies=copies if copies in (None, "any") else find(copies),
            like=find(parameters["like"]) if "like" in parameters else None,
            marked={"1": True, "0": False}.get(parameters.get("marked", "")),
            values=tuple(
                (name.partition(":")[2], parameters[name] if name.startswith(IS) else None)
                for name in chosen
                if name.startswith((IS, IS_NULL))
            ),
            ranges=tuple(
                parse_range(name, parameters[name])
                for name in chosen
                if name.startswith((IN, BYTES_IN))
            ),
            tagged=parameters.get("tagged"),
            prediction=parameters.get("prediction"),
            predicted=parameters.get("predicted"),
            confidence=number_of(confidence) if confidence is not None else None,
            sort=parameters.get("sort", ""),
            descending=parameters.get("descending") == "1",
        )
        self.thumb = parameters.get("thumb", "m") if parameters.get("thumb", "m") in THUMBS else "m"
        self.as_table = not found.has_images or parameters.get("view") == "table"
        self.count = _PAGE["table" if self.as_table else self.thumb]

    def key(self, row: Row) -> str:
        """Return what the checkbox of a record stands for: the record, and the tag."""
        return tag_key(row, self.tag)

    def url(self, path: str = "/", /, **changes: Any) -> str:
        """Return an address with some parameters changed; None removes one."""
        merged = self.parameters | {"page": None, "n": None, "was": None} | changes
        parameters = {name: value for name, value in merged.items() if value is not None}
        return f"{path}?{urlencode(parameters)}" if parameters else path


def number_of(text: str) -> int:
    """Return a number in an address; `UsageError` if it isn't one."""
    if re.fullmatch("[0-9]{1,18}", text) is None:
        raise UsageError("invalid number in the address")
    return int(text)


def parse_range(parameter: str, text: str) -> ColumnRange:
    """Return the range of a column that a parameter asks for."""
    start, _, name = parameter.partition(":")
    return ColumnRange.parse(name, text, in_bytes=f"{start}:" == BYTES_IN)


def range_parameter(values: ColumnRange) -> str:
    """Return the parameter that asks for a range of a column."""
    return f"{BYTES_IN if values.in_bytes else IN}{values.name}"


def tag_key(row: Row, tag: str) -> str:
    """Return the shard and the record with a tag, such as "3/12/blurry"; "3/12" if it is marked."""
    return f"{row.shard}/{row.record}" + ("" if tag == MARKED else f"/{tag}")


def parse_tag_key(text: str) -> tuple[str, RecordKey]:
    """Return the tag and the record of a `tag_key`."""
    shard, record, *tags = text.split("/", 2)[:3] if "/" in text else (text, "")
    return parse_tag(tags[0] if tags else MARKED), (number_of(shard), number_of(record))


def picture_url(row: Row, box: int) -> str:
    """Return the address of an image."""
    return f"/image/{row.shard}/{row.offset}?box={box}"
