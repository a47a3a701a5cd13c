"""The tasks of Label Studio's exports: JSON, JSON-MIN and CSV."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

from tfrtool.errors import SourceError
from tfrtool.sources.formats.csv_rows import csv_rows, detect_delimiter
from tfrtool.sources.formats.json_rows import json_rows, parse_json
from tfrtool.storage.remote_path import AnyPath

_ANNOTATIONS = ("annotations", "completions")  # the latter up to 2020
_SMALL_EXPORT = frozenset({"annotation_id", "annotator", "lead_time"})
"""Members that JSON-MIN and CSV have for each task."""

_NO_VALUES = _SMALL_EXPORT | {"id", "created_at", "updated_at", "agreement"}
_IMAGE_PATH = re.compile(
    r"(?:/data/|https?://|s3://|gs://|azure-blob://).+"
    r"|[^\n]+\.(?:jpe?g|png|gif|bmp|webp|tiff?|avif|hei[cf])",
    re.IGNORECASE,
)
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")
"""What Label Studio puts before the names of files that are uploaded."""

_SIZES = ("original_width", "original_height", "image_rotation")
_GEOMETRY = frozenset(
    (
        *("x", "y", "width", "height", "rotation", "points", "closed", "radiusX", "radiusY"),
        *("rle", "format", *_SIZES),
    )
)


@dataclass(slots=True)
class LabelStudioRegion:
    """A region of an image; lengths are percent of the image's sides."""

    values: dict[str, Any] = field(default_factory=dict)  # its geometry
    labels: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    parent: str = ""  # the identifier of the region that it belongs to


@dataclass(slots=True)
class LabelStudioTask:
    """What an export has of an image.

    Attributes:
        where: the task, as messages call it.
        number: of the task in its file, from 1.
        image: its path, as Label Studio has it; "" if there is none.
        annotations: how many there are; only the latest is read.
        regions: by identifiers.
        choices: of the image as a whole, by the names of their controls.
        others: kinds of results that are not read.
        problem: why it can't be read.
    """

    where: str
    number: int
    image: str = ""
    annotations: int = 1
    regions: dict[str, LabelStudioRegion] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    problem: str | None = None


def read_tasks(file: BinaryIO, path: AnyPath) -> Iterator[LabelStudioTask]:
    """Yield the tasks of an export; none if the file is of another kind.

    Raises:
        SourceError: the file is damaged.
    """
    is_table = path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))
    for number, row in _csv_tasks(file, path) if is_table else _json_tasks(file, path):
        where = f"{'row' if is_table else 'task'} {number}"
        if isinstance(row, str):
            yield LabelStudioTask(where, number, problem=row)
        elif isinstance(row.get("data"), dict):
            yield _full_task(where, number, row)
        else:
            yield _small_task(where, number, row)


def image_names(path: str) -> tuple[str, str]:
    """Return the path of a task's image in folders, and the one it had before its upload."""
    if path.startswith("/data/local-files/"):
        name = next(iter(parse_qs(urlsplit(path).query).get("d", ())), "")
    elif "://" in path:
        name = unquote(urlsplit(path).path)
    else:
        name = unquote(path.removeprefix("/data/upload/"))
    name = name.replace("\\", "/").strip("/")
    folder, slash, last = name.rpartition("/")
    return name, folder + slash + _UPLOADED.sub("", last, count=1)


def _json_tasks(file: BinaryIO, path: AnyPath) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    is_first = True
    for _, number, _, row in json_rows(file, path):
        if is_first and (isinstance(row, str) or not _is_task(row)):
            return
        is_first = False
        yield number, row


def _csv_tasks(file: BinaryIO, path: AnyPath) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    names: list[str] = []
    for number, cells in enumerate(csv_rows(file, path, detect_delimiter(file, path)), start=1):
        if not names:
            names = [*cells]
            if not {*names} >= _SMALL_EXPORT:
                return
        elif any(cells):
            yield number, {name: _cell(text) for name, text in zip(names, cells, strict=False)}


def _cell(text: str) -> Any:
    if not text.startswith(("[", "{")):
        return text
    try:
        return parse_json(text.encode())
    except (ValueError, RecursionError):
        return text


def _is_task(row: Mapping[str, Any]) -> bool:
    is_full = isinstance(row.get("data"), dict) and any(
        isinstance(row.get(name), list) for name in _ANNOTATIONS
    )
    return is_full or row.keys() >= _SMALL_EXPORT


def _full_task(where: str, number: int, row: Mapping[str, Any]) -> LabelStudioTask:
    task = LabelStudioTask(where, number, _image_of(row["data"]))
    listed = (row[name] for name in _ANNOTATIONS if isinstance(row.get(name), list))
    usable = [one for one in next(listed, []) if isinstance(one, dict)]
    usable = [one for one in usable if not (one.get("was_cancelled") or one.get("skipped"))]
    task.annotations = len(usable)
    if usable:
        results = max(usable, key=_date_of).get("result")
        for index, result in enumerate(results if isinstance(results, list) else []):
            if isinstance(result, dict) and isinstance(result.get("value"), dict):
                _add_result(task, result, index)
            elif isinstance(result, dict):
                task.others.append(str(result.get("type", "result"))[:40])
    return task


def _date_of(annotation: Mapping[str, Any]) -> str:
    return str(annotation.get("updated_at", annotation.get("created_at", "")))


def _add_result(task: LabelStudioTask, result: Mapping[str, Any], index: int) -> None:
    """Add a result; several with one identifier are of the same region."""
    value, name = result["value"], str(result.get("from_name", ""))
    value = {**value, **{one: result[one] for one in _SIZES if one in result}}
    if not _GEOMETRY.isdisjoint(value.keys() - {*_SIZES, "format"}):
        key = str(result.get("id", f"[{index}]"))
        region = task.regions.setdefault(key, LabelStudioRegion())
        _add_values(region, value, name)
        region.parent = str(result.get("parentID") or region.parent)
    elif (choices := _texts(value.get("choices"))) is not None:
        task.choices.setdefault(name, []).extend(choices)
    else:
        task.others.append(str(result.get("type", "result"))[:40])


def _add_values(region: LabelStudioRegion, value: Mapping[str, Any], name: str) -> None:
    for key, part in value.items():
        if key in _GEOMETRY:
            region.values[key] = part
        elif key.endswith("labels") and (labels := _texts(part)) is not None:
            region.labels += labels
        else:
            region.attributes[name if key in ("choices", "text") and name else key] = part


def _small_task(where: str, number: int, row: Mapping[str, Any]) -> LabelStudioTask:
    task = LabelStudioTask(where, number, _image_of(row))
    for name, part in row.items():
        if name in _NO_VALUES or part in (task.image, None, ""):
            continue
        if isinstance(part, list) and all(isinstance(one, dict) for one in part):
            for index, value in enumerate(part):
                region = LabelStudioRegion()
                _add_values(region, value, name)
                task.regions[f"{name}[{index}]"] = region
        elif isinstance(part, dict) and (choices := _texts(part.get("choices"))) is not None:
            task.choices[name] = choices
        elif isinstance(part, str):
            task.choices[name] = [part]
        else:
            task.others.append(name[:40])
    return task


def _image_of(row: Mapping[str, Any]) -> str:
    texts = {name: one for name, one in row.items() if isinstance(one, str)}
    likely = (texts.get("image"), texts.get("img"), *texts.values())
    return next((one for one in likely if one and _IMAGE_PATH.fullmatch(one)), "")


def _texts(value: Any) -> list[str] | None:
    """Return texts in a list; None for anything else."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    return None


def is_export(file: BinaryIO, path: AnyPath) -> bool:
    """Return whether a file starts as an export does."""
    try:
        return next(iter(read_tasks(file, path)), None) is not None
    except (SourceError, json.JSONDecodeError):
        return False
