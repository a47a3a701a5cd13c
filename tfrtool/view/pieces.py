"""The sections of the report and the viewer: templates over the findings, escaped by Jinja2."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tfrtool.errors import human_bytes, human_count, named_record, printable
from tfrtool.examples.feature_text import python_source
from tfrtool.images.overlay import color_of
from tfrtool.inspection.stats.stats_page import stats_page
from tfrtool.inspection.table.gallery import CLASSES, GROUPS, SHARDS, sorted_classes
from tfrtool.inspection.table.record_query import Row
from tfrtool.inspection.verify.duplicates import Duplicates
from tfrtool.inspection.verify.feature_faults import FeatureFault
from tfrtool.inspection.verify.verify import VerifyReport
from tfrtool.page import Histogram, Table
from tfrtool.storage.remote_path import AnyPath
from tfrtool.view import drawings
from tfrtool.view.findings import Findings

SECTIONS = {
    "about": "Overview",
    "health": "Problems",
    "balance": "Class balance",
    "objects": "Objects",
    "shuffling": "Label order",
    "images": "Images",
    "examples": "Samples",
    "unusual": "Outliers",
    "alike": "Near duplicates",
    "features": "Statistics",
}
"""The sections in order, with their titles."""

_SAME = {"unusual": "examples"}

NO_SPLIT = "(none)"
"""The name of the split of shards without one."""

_FAULTS, _FEATURES = 200, 200
_LONGEST, _PROSE, _SOURCE = 40, 400, 100_000
_NUMBER = re.compile(r"all|unknown|(?:about )?-?[\d,.]+(?: ?%)?")
_MOST_ARGUMENTS = 4


@dataclass(frozen=True, slots=True)
class Links:
    """Where sections lead.

    Attributes:
        picture: returns the address of the thumbnail of a row, or the picture itself.
        record: returns the address of a record, by shard and number; None without a server.
        records: returns the address of the records with these filters.
        damage: returns the address of a fault, by shard and offset; None without a server.
    """

    picture: Callable[[Row], str | None]
    record: Callable[[int, int], str | None] = lambda _shard, _record: None
    records: Callable[..., str | None] = lambda **_filters: None
    damage: Callable[[int, int], str | None] = lambda _shard, _offset: None


@cache
def environment() -> Any:
    """Return Jinja2 with the templates, which escapes everything."""
    import jinja2

    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    jinja.filters |= {
        "number": lambda value: (
            drawings.number(value) if isinstance(value, int | float) else short(str(value), _PROSE)
        ),
        "human_bytes": human_bytes,
        "printable": lambda text: short(str(text), _PROSE),
        "percent": lambda share: f"{100 * share:.1f} %",
        "cell": _cell,
    }
    jinja.tests["table"] = lambda block: isinstance(block, Table)
    jinja.globals |= {
        "human_count": human_count,
        "right_of": _right_of,
        "soundness": soundness,
    }
    return jinja


def _cell(text: str) -> str:
    """Return a cell of a `Table`; histograms are drawn."""
    if isinstance(text, Histogram):
        return drawings.histogram(text.counts, text.edges, height=24)
    return short(text, _PROSE)


def _right_of(table: Table) -> set[int]:
    """Return the columns of a table that are aligned at the right: all that hold numbers."""
    columns = enumerate(zip(*table.rows, strict=True))
    return {*table.right, *(at for at, column in columns if all(map(_NUMBER.fullmatch, column)))}


def soundness(verdict: VerifyReport) -> str:
    """Return what is said of a dataset without faults; copies within a split are none."""
    copies = verdict.duplicates or Duplicates()
    if not copies.within:
        return "No problems found"
    return f"No faults, but {human_count(copies.within, 'group')} of duplicate images"


def style() -> str:
    """Return the style sheet of all pages."""
    return Path(__file__).with_name("static").joinpath("style.css").read_text("utf-8")


def section(name: str, found: Findings, links: Links) -> Markup:
    """Render a section; empty if there is nothing to show, or not yet."""
    context = _CONTEXTS[name](found, links)
    if context is None:
        return Markup("")
    template = environment().get_template(f"{_SAME.get(name, name)}.html")
    return Markup(template.render(f=found, title=SECTIONS[name], id=name, **context))


def short(text: str, most: int = _LONGEST) -> str:
    """Return a text on one line, its beginning if it is long."""
    shown = printable(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[:most]}..."


def verify_command(found: Findings) -> str:
    """Return the command that lists all faults."""
    few = found.arguments if len(found.arguments) <= _MOST_ARGUMENTS else ()
    paths = [f"./{path}" if str(path).startswith("-") else str(path) for path in few] or ["SHARDS"]
    options = ["--images"] * found.has_images
    return printable(shlex.join(["tfrtool", "verify", *options, "--json", *paths]))


def named_class(found: Findings, name: str) -> str:
    """Return a class with its number, if it has a name."""
    names = found.table.class_names
    return f"{names.index(name)} {name}" if name in names else name


def caption(found: Findings, row: Row) -> str:
    """Return the classes of a record."""
    shown = [named_class(found, one) for one in row.classes[:3]]
    return short(", ".join(shown)) + ", ..." * (len(row.classes) > len(shown))


def shown_prediction(row: Row) -> dict[str, Any] | None:
    """Return the prediction of a record in short, and the label that it differs from."""
    found = row.prediction
    if found is None:
        return None
    confidence, loss = found["confidence"], found["loss"]
    return {
        "text": short(found["predicted"]),
        "confidence": "" if confidence is None else f"{100 * confidence:.0f} %",
        "label": short(found["label"] or ", ".join(row.classes[:3])),
        "loss": "" if loss is None else f"{loss:.3g}",
        "kind": {True: "good", False: "bad"}.get(found["correct"], "faint"),
        "sign": {True: "\N{CHECK MARK}", False: "\N{BALLOT X}"}.get(found["correct"], ""),
        "is_right": found["correct"],
    }


def record_name(found: Findings, shard: int, record: int) -> str:
    """Return the name of a record."""
    return printable(named_record(found.listed_names[shard], record))


def tiles(found: Findings, rows: Sequence[Row], links: Links) -> list[dict[str, Any]]:
    """Return small pictures with their captions."""
    return [
        {
            "src": links.picture(row),
            "href": links.record(row.shard, row.record),
            "title": record_name(found, row.shard, row.record),
            "caption": ", ".join(filter(None, (caption(found, row), row.note))),
        }
        for row in rows
    ]


def _about(found: Findings, _: Links) -> dict[str, Any]:
    rows = {} if found.gallery is None else found.gallery.shard_rows
    splits: dict[str, Counter[str]] = {}
    for number, (path, name) in enumerate(zip(found.paths, found.splits, strict=True)):
        counts = {"shards": 1, "records": rows.get(number, 0), "bytes": path.stat().st_size}
        splits.setdefault(name or NO_SPLIT, Counter()).update(counts)
    source = ""
    if found.schema is not None:
        source = python_source(found.schema.features, found.schema.records)[:_SOURCE]
    shards = () if found.verdict is None else found.verdict.shards
    kinds = sorted({one.payload.title for one in shards if one.records})
    return {"splits": splits, "kinds": kinds, "source": source}


def _health(found: Findings, links: Links) -> dict[str, Any] | None:
    verdict = found.verdict
    if verdict is None:
        return None
    number = {path: n for n, path in enumerate(found.paths)}

    def record(path: AnyPath, record: int | None) -> str | None:
        known = record is not None and path in number
        return links.record(number[path], record) if known else None  # type: ignore[arg-type]

    faults: list[tuple[Any, ...]] = [
        (one.path, fault.kind.value, fault.record, fault.offset, fault.message, fault.cause)
        for one in verdict.shards
        for fault in one.faults
    ]
    for one in verdict.faults:
        message = one.text if isinstance(one, FeatureFault) else one.message
        faults.append((one.path, one.kind.value, one.record, one.offset, message, None))
    faults += [
        (one.path, "unreadable", None, None, one.error or "", None) for one in verdict.unreadable
    ]
    copies = verdict.duplicates or Duplicates()
    damaged = {(one.path, fault.offset) for one in verdict.shards for fault in one.faults}

    def damage(path: AnyPath, offset: int | None) -> str | None:
        is_known = offset is not None and path in number and (path, offset) in damaged
        return links.damage(number[path], offset) if is_known else None  # type: ignore[arg-type]

    return {
        "faults": [
            (*fault, record(fault[0], fault[2]), damage(fault[0], fault[3]))
            for fault in faults[:_FAULTS]
        ],
        "more": verdict.n_problems - copies.spoiled - len(faults[:_FAULTS]),
        "groups": [
            (one, [(copy, record(copy.path, copy.record)) for copy in one.copies[:4]])
            for one in copies.groups[:GROUPS]
        ],
        "spoiled": copies.spoiled,
        "more_groups": copies.spoiled + copies.within - GROUPS,
        "command": verify_command(found),
        "all_copies": links.records(copies="any"),
    }


def _balance(found: Findings, _: Links) -> dict[str, Any] | None:
    if found.gallery is None or not found.gallery.classes or found.label is None:
        return None
    classes = found.gallery.classes
    names = sorted_classes((n for one in classes.values() for n in one), found.table.class_names)
    splits = dict.fromkeys(one or "" for one in found.splits)
    counts = {split or NO_SPLIT: classes[split] for split in splits if split in classes}
    return {"what": "record"} | _bars(counts, names)


def _objects(found: Findings, _: Links) -> dict[str, Any] | None:
    known = {} if found.summary is None else found.summary.splits
    splits = {name: one.objects for name, one in known.items() if one.objects is not None}
    counts = {split: one.object_classes for split, one in splits.items()}
    names = sorted({name for one in counts.values() for name in one})
    named = found.roles(0).object_names
    boxes = [(short(name), color_of(number)) for number, name in named.items()]
    bars = {"what": "object", "splits": splits, "boxes": boxes[:CLASSES]}
    return bars | _bars(counts, names) if splits else None


def _bars(counts: Mapping[str, Mapping[str, int]], names: Sequence[str]) -> dict[str, Any]:
    """Return bars of the largest classes, from their counts by split."""
    totals = {name: sum(one.get(name, 0) for one in counts.values()) for name in names}
    shown = set(sorted(totals, key=lambda name: -totals[name])[:CLASSES])
    rows = {
        short(name, _PROSE): {split: one.get(name, 0) for split, one in counts.items()}
        for name in names
        if name in shown
    }
    return {
        "drawing": drawings.bars(rows, list(counts)),
        "series": list(counts),
        "classes": len(names),
        "shown": len(shown),
        "largest": max(totals.values(), default=0),
        "smallest": min(totals.values(), default=0),
    }


def _shuffling(found: Findings, _: Links) -> dict[str, Any] | None:
    if found.gallery is None or found.label is None:
        return None
    counts = found.gallery.classes.values()
    names = sorted_classes((name for one in counts for name in one), found.table.class_names)
    if len(names) < 2:
        return None
    code = {name: number for number, name in enumerate(names)}
    shown = list(map(short, names))
    strips = {
        found.names[shard]: drawings.strip(
            [code.get(one or "") for one in cells], shown, f"labels in {found.names[shard]}"
        )
        for shard, cells in found.gallery.strips.items()
    }
    known = {} if found.summary is None else found.summary.splits
    return {
        "strips": strips,
        "more": len(found.paths) - SHARDS,
        "quality": {name: one.shuffle.shuffle for name, one in known.items() if one.shuffle},
        "names": shown[: drawings.COLORS],
        "others": len(names) - drawings.COLORS,
    }


def _images(found: Findings, _: Links) -> dict[str, Any] | None:
    if found.gallery is None or not found.gallery.histograms:
        return None
    features = () if found.statistics is None else found.statistics.features
    units = {"width": "pixels", "height": "pixels", "brightness": "0 to 1", "entropy": "bits"}
    return {
        "held": [(short(one["name"]), one["images"]) for one in features if one.get("images")],
        "drawn": {
            f"{name.capitalize()} ({units[name]})": (drawings.histogram(*one), one[1])
            for name, one in found.gallery.histograms.items()
        },
    }


def _examples(found: Findings, links: Links) -> dict[str, Any] | None:
    examples = {} if found.gallery is None else found.gallery.examples
    groups = [
        (short(name), links.records(label=name), tiles(found, examples[name], links))
        for name in sorted_classes(examples, found.table.class_names)
    ]
    return {"groups": groups} if groups else None


def _unusual(found: Findings, links: Links) -> dict[str, Any] | None:
    unusual = {} if found.gallery is None else found.gallery.unusual
    groups = [(why.capitalize(), None, tiles(found, one, links)) for why, one in unusual.items()]
    return {"groups": groups} if groups else None


def _alike(found: Findings, links: Links) -> dict[str, Any] | None:
    if found.gallery is None or not found.gallery.similar:
        return None
    return {
        "groups": [
            (
                human_count(count, "image"),
                links.records(like=found.record_names.name(rows[0].shard, rows[0].record)),
                tiles(found, rows, links),
            )
            for count, rows in found.gallery.similar
        ],
        "total": found.gallery.similar_groups,
        "is_complete": found.gallery.all_compared,
    }


def _features(found: Findings, _links: Links) -> dict[str, Any] | None:
    if found.statistics is None or not found.statistics.features:
        return None
    _, *page = stats_page(found.statistics, most=_FEATURES)  # its heading is that of the section
    return {
        "page": page,
        "more": len(found.statistics.features) - _FEATURES + found.statistics.skipped,
    }


_CONTEXTS: Mapping[str, Callable[[Findings, Links], dict[str, Any] | None]] = {
    "about": _about,
    "health": _health,
    "balance": _balance,
    "objects": _objects,
    "shuffling": _shuffling,
    "images": _images,
    "examples": _examples,
    "unusual": _unusual,
    "alike": _alike,
    "features": _features,
}
