"""The pieces that pages are made of: each a template over what is found, escaped by Jinja2."""

import base64
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tfrtool.errors import human_bytes, human_count, printable
from tfrtool.examples.example import PayloadKind
from tfrtool.images.overlay import colour_of
from tfrtool.images.pixels import encoded
from tfrtool.inspection.pictures.objects import thumbnail
from tfrtool.inspection.table import gallery
from tfrtool.inspection.verify.duplicates import GROUPS_KEPT, Duplicates
from tfrtool.inspection.verify.verify import VerifyReport
from tfrtool.storage.limits import MAX_FAULTS
from tfrtool.view import drawings
from tfrtool.view.findings import Findings
from tfrtool.view.terminal import verify_command

PIECES = {
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
"""The sections of a page, in order, with their titles."""

_FAULTS, _SHARDS, _CLASSES, _FEATURES, _GROUPS = 200, 60, 40, 200, 20
_THUMB = 96
_LONGEST, _PROSE, _SOURCE = 40, 400, 100_000
_CELLS = 6000
_HELD_BYTES = 64 * 1024 * 1024
_EACH, _MOST = 6, 12

PictureOf = Callable[[int], str | None]
"""Returns where a page finds the small picture of a row: an address, or the picture itself."""


@cache
def environment() -> Any:
    """Return Jinja2 with our templates, which escapes all."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "number": lambda value: (
            drawings.number(value) if isinstance(value, int | float) else short(str(value), _PROSE)
        ),
        "human_bytes": human_bytes,
        "printable": lambda text: short(str(text), _PROSE),
        "heading": lambda key: _heading(short(str(key), _PROSE)),
        "percent": lambda share: f"{100 * share:.1f} %",
    }
    made.globals |= {"histogram": drawings.histogram, "human_count": human_count}
    return made


def style() -> str:
    """Return the style sheet of all pages."""
    return Path(__file__).with_name("static").joinpath("style.css").read_text("utf-8")


def piece(name: str, found: Findings, picture_of: PictureOf) -> Markup:
    """Render a piece; empty where it has nothing to say, or not yet."""
    context = _CONTEXTS[name](found, picture_of)
    if context is None:
        return Markup("")
    template = environment().get_template(f"{name}.html")
    return Markup(template.render(f=found, title=PIECES[name], id=name, **context))


def too_long(name: str) -> Markup:
    """Return the placeholder for a section that is too large for a page."""
    text = "Too large to include in this report."
    return Markup('<section id="{}"><h2>{}</h2><p>{}</p></section>').format(
        name, PIECES[name], text
    )


def _heading(key: str) -> str:
    """Return the key of a JSON object as a heading: "Val loss" for "val_loss"."""
    return key[:1].upper() + key[1:].replace("_", " ")


def short(text: str, most: int = _LONGEST) -> str:
    """Return a text as it prints on one line, its beginning if it is long."""
    shown = printable(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[:most]}..."


def inline_pictures(found: Findings, rows: Sequence[int]) -> dict[int, str]:
    """Return the pictures of rows as data URLs; those that can't be shown are missing."""
    made: dict[int, str] = {}
    while records := found.index.read(rows, _HELD_BYTES):
        for row, record in records.items():
            roles = found.roles(found.index.place(row).path)
            data = encoded(thumbnail(record.payload, roles, _THUMB))
            if data is not None:
                kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
                made[row] = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        rows = [row for row in rows if row not in records]
    return made


def _about(found: Findings, _: PictureOf) -> dict[str, Any]:
    rows = found.table.shard_rows()
    splits: dict[str, dict[str, int]] = {}
    for path, name in found.split_of.items():
        one = splits.setdefault(name, {"shards": 0, "records": 0, "bytes": 0})
        one["shards"] += 1
        one["records"] += rows.get(path, 0)
        one["bytes"] += found.size_of[path]
    kinds = sorted(kind.title for kind in found.table.kinds if kind is not PayloadKind.EMPTY)
    source = found.schema_source or ""
    if len(source) > _SOURCE:
        source = f"{source[:_SOURCE]}\n# ... run tfrtool inspect schema for the rest"
    candidates = found.label_candidates if found.label is None else ()
    guess = {"candidates": list(map(short, candidates)), "command": ""}
    if candidates and found.dataset is not None:
        words = ("inspect", "dataset", str(found.arguments[0]), "--label-feature", candidates[0])
        guess["command"] = printable(shlex.join(("tfrtool", *words)))
    return {"splits": splits, "kinds": kinds, "source": source, **guess}


def _health(found: Findings, _: PictureOf) -> dict[str, Any] | None:
    return None if found.verdict is None else health_of(found.verdict, verify_command(found))


def health_of(verdict: VerifyReport, command: str | None = None) -> dict[str, Any]:
    """Return what is shown of a verdict; the command lists what is not shown."""
    faults = [
        {"path": one.path, "record": f.record, "offset": f.offset, "kind": f.kind.value,
         "message": f.message, "cause": f.cause}
        for one in verdict.shards
        for f in one.faults
    ]  # fmt: skip
    faults += [
        {"path": f.path, "record": None, "offset": None, "kind": f.kind.value,
         "message": f.message, "cause": None}
        for f in verdict.faults
    ]  # fmt: skip
    faults += [
        {"path": one.path, "record": None, "offset": None, "kind": "unreadable",
         "message": one.error, "cause": None}
        for one in verdict.unreadable
    ]  # fmt: skip
    copies = verdict.duplicates or Duplicates()
    if command is None:
        images = "" if verdict.duplicates is None else "--images "
        command = f"tfrtool verify {images}--json SHARDS"
    return {
        "verdict": verdict,
        "faults": faults[:_FAULTS],
        "more": verdict.n_problems - copies.spoiled - len(faults[:_FAULTS]),
        "copies": copies.groups[:_GROUPS],
        "spoiled": copies.spoiled,
        "more_copies": copies.spoiled + copies.within - _GROUPS,
        "command": command,
        "is_cut": any(one.n_faults > len(one.faults) for one in verdict.shards)
        or copies.spoiled > GROUPS_KEPT,
        "limits": (MAX_FAULTS, GROUPS_KEPT),
    }


def _balance(found: Findings, _: PictureOf) -> dict[str, Any] | None:
    labels = found.labels()
    if not labels.names:
        return None
    counts = gallery.label_counts(found.table, labels, found.split_of)
    return {"what": "record"} | _bars(counts, labels.names)


def _objects(found: Findings, _: PictureOf) -> dict[str, Any] | None:
    known = {} if found.summary is None else found.summary.splits
    splits = {name: one.objects for name, one in known.items() if one.objects is not None}
    counts = {split: one.object_classes for split, one in splits.items()}
    names = sorted({name for one in counts.values() for name in one})
    named = found.roles(found.paths[0]).object_names
    boxes = [(short(name), colour_of(number)) for number, name in named.items()]
    told = {"what": "object", "splits": splits, "boxes": boxes[:_CLASSES]}
    return told | _bars(counts, names) if splits else None


def _bars(counts: Mapping[str, Mapping[str, int]], names: Sequence[str]) -> dict[str, Any]:
    """Return bars of classes, in order, from how many each split has; the largest if many."""
    totals = {name: sum(one.get(name, 0) for one in counts.values()) for name in names}
    shown = set(sorted(totals, key=lambda name: -totals[name])[:_CLASSES])
    rows_of = {
        short(name, _PROSE): {split: one.get(name, 0) for split, one in counts.items()}
        for name in names
        if name in shown
    }
    return {
        "drawing": drawings.bars(rows_of, list(counts)),
        "series": list(counts),
        "classes": len(names),
        "shown": len(shown),
        "largest": max(totals.values()),
        "smallest": min(totals.values()),
    }


def _shuffling(found: Findings, _: PictureOf) -> dict[str, Any] | None:
    labels = found.labels()
    if len(labels.names) < 2:
        return None
    names = list(map(short, labels.names))
    drawn = [
        {
            "name": short(Path(path).name, _PROSE),
            "drawing": drawings.strip(cells, names, f"labels in {printable(Path(path).name)}"),
        }
        for path, cells in gallery.strips(found.table, labels, _CELLS, _SHARDS).items()
    ]
    known = {} if found.summary is None else found.summary.splits
    quality = {name: one.shuffle.shuffle for name, one in known.items() if one.shuffle}
    return {
        "strips": drawn,
        "more": len(found.table.shard_rows()) - len(drawn),
        "quality": quality,
        "names": names[: drawings.COLOURS],
        "others": len(names) - drawings.COLOURS,
    }


def _images(found: Findings, _: PictureOf) -> dict[str, Any] | None:
    if found.statistics is None or not found.table.has("image.width"):
        return None
    held = [
        {"name": printable(one["name"]), **one["images"]}
        for one in found.statistics.features
        if one.get("images")
    ]
    drawn = {}
    for name in ("width", "height", "brightness", "entropy"):
        if (one := gallery.histogram(found.table, f"image.{name}")) is not None:
            counts, edges = one
            drawing = drawings.histogram(counts, edges)
            drawn[name + " (bits)" * (name == "entropy")] = {
                "drawing": drawing,
                "low": edges[0],
                "high": edges[-1],
            }
    return {"held": held, "drawn": drawn}


def _examples(found: Findings, picture_of: PictureOf) -> dict[str, Any] | None:
    if not found.has_images:
        return None
    labels = found.labels()
    rows = gallery.examples(labels, _EACH, _CLASSES)
    groups = [(short(n, _PROSE), _tiles(found, r, picture_of)) for n, r in rows.items()]
    return {"groups": groups, "more": len(labels.names) - len(groups)}


def _unusual(found: Findings, picture_of: PictureOf) -> dict[str, Any] | None:
    rows = gallery.unusual(found.table, _MOST)
    if not rows:
        return None
    return {
        "groups": [
            (why, _tiles(found, [row for row, _ in some], picture_of, [said for _, said in some]))
            for why, some in rows.items()
        ]
    }


def _alike(found: Findings, picture_of: PictureOf) -> dict[str, Any] | None:
    groups, more = gallery.alike(found.table, 1000)
    if not groups:
        return None
    return {
        "groups": [
            (human_count(len(rows), "image"), _tiles(found, rows[:_MOST], picture_of))
            for rows in groups[:_GROUPS]
        ],
        "count": len(groups),
        "more": more,
        "most_shown": _MOST if len(groups[0]) > _MOST else 0,
    }


def _features(found: Findings, _: PictureOf) -> dict[str, Any] | None:
    if found.statistics is None:
        return None
    features, records = found.statistics.features, found.statistics.records
    return {
        "rows": [_feature_row(one, records) for one in features[:_FEATURES]],
        "more": len(features) - _FEATURES + found.statistics.skipped,
    }


def _feature_row(one: Mapping[str, Any], records: int) -> dict[str, Any]:
    """Return a feature's row in the table: a summary of what ``inspect stats --json`` prints."""
    texts, lengths = [], one["lengths"]
    values = one.get("values")
    if values and values["count"]:
        low, high, mean = (drawings.number(values[key]) for key in ("min", "max", "mean"))
        a_range = f"{low} to {high}, mean {mean}"
        texts.append(a_range if values["min"] < values["max"] else f"always {low}")
        if values["nan"]:
            texts.append(f"{values['nan']:,} NaN")
    else:
        texts += [f"{_value(c['value'])} ({c['count']:,})" for c in one.get("common", ())[:4]]
    if lengths["count"] and (lengths["min"], lengths["max"]) != (1, 1):
        texts.append(f"{lengths['min']:,} to {lengths['max']:,} values per record")
    held = (one[part] for part in ("values", "width", "bytes", "lengths") if one.get(part))
    drawn = next((part["histogram"] for part in held if part["count"]), None)
    return {
        "name": short(one["name"], _PROSE),
        "dtype": one["dtype"] or "no values",
        "present": one["present"] / records if records else 0.0,
        "summary": ", ".join(texts),
        "drawing": drawn and drawings.histogram(drawn["counts"], drawn["edges"]),
    }


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("text", f"{value['bytes']:,} bytes of {value['content']}")
    return short(str(value)) or '""'


def _tiles(
    found: Findings, rows: Sequence[int], picture_of: PictureOf, said: Sequence[str] = ()
) -> list[Mapping[str, Any]]:
    """Return small pictures with their labels, and what else is said of each."""
    known = found.captions(rows)
    names = [short(known.get(row, "")) for row in rows]
    return [
        {"row": row, "src": picture_of(row), "caption": ", ".join(filter(None, texts))}
        for row, *texts in zip(rows, names, said or [""] * len(rows), strict=True)
    ]


_CONTEXTS: Mapping[str, Callable[[Findings, PictureOf], dict[str, Any] | None]] = {
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
