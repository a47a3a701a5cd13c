"""The tags of records, and the commands that use their lists."""

import re
import shlex
from pathlib import Path
from typing import Any

from tfrtool.errors import printable
from tfrtool.inspection.table.record_query import Row
from tfrtool.view.findings import Findings
from tfrtool.view.live import Live
from tfrtool.view.marks import MARKED
from tfrtool.view.page_address import PageAddress, tag_key


def list_tags(live: Live, asked: PageAddress) -> list[dict[str, Any]]:
    """Return the tags that there are, and the current one."""
    return [
        {
            "name": tag,
            "count": len(live.marks.records(tag)),
            "href": asked.url(tag=None if tag == MARKED else tag),
            "is_current": tag == asked.tag,
        }
        for tag in sorted({MARKED, asked.tag, *live.marks.tags})
    ]


def tags_of_record(live: Live, asked: PageAddress, row: Row) -> list[dict[str, Any]]:
    """Return for each tag what its checkbox on the page of a record stands for."""
    return [
        {
            "name": one["name"],
            "key": tag_key(row, one["name"]),
            "is_set": one["name"] in row.tags,
            "is_current": one["is_current"],
        }
        for one in list_tags(live, asked)
    ]


def tag_commands(live: Live, tag: str) -> dict[str, str]:
    """Return the commands that drop the records of a tag, keep them, or write all tags."""
    found, path = live.found, str(live.marks.path(tag))
    tags = [name for name in live.marks.tags if name != tag] + [tag]
    written = [f"--tag={name}={live.marks.path(name)}" for name in sorted(tags)]
    return {
        "drop": copy_command("filter", found, f"without-{tag}", "--drop", path),
        "keep": copy_command("filter", found, f"only-{tag}", "--keep", path),
        "edit": copy_command("edit", found, "tagged", *written),
    }


def copy_command(verb: str, found: Findings, ending: str, *options: str) -> str:
    """Return a command that copies the dataset; SOURCE if it takes several to name it."""
    source = str(found.arguments[0]) if len(found.arguments) == 1 else "SOURCE"
    name = re.sub(r"[^\w.-]+", "-", found.title).strip("-.") or "records"
    target = f"{name}-{ending}"
    if len(found.arguments) == 1 and isinstance(found.arguments[0], Path):
        folder = found.arguments[0]
        source = f"./{source}" if source.startswith("-") else source
        if folder.is_dir() and Path(target).absolute().is_relative_to(folder.absolute()):
            target = str(Path("..", target))
    return printable(shlex.join(["tfrtool", verb, source, target, *options]))
