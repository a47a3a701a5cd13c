"""COCO's form of JSON with categories alone, as iNaturalist, iWildCam and LILA have it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import msgspec

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.sources.annotations.annotation_reader import split_in_name
from tfrtool.sources.folders.listing import list_directory
from tfrtool.sources.formats.json_lists import JsonFile
from tfrtool.sources.items import Source
from tfrtool.sources.label_choice import SEVERAL, with_labels
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.tables import read_table
from tfrtool.storage.arguments import as_path
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.sorted_rows import SortedRows

_PATH, _LABEL = "file_name", "category"
_NONE = (b"null", b"[]", b'""')
_NULL = msgspec.Raw(b"null")
_IMAGE, _ANNOTATION = range(2)
_SHOWN = 40

_Rows = SortedRows[tuple[int, str, int, int, str, str]]
"""The number of the file, the id of the image, which kind of element it is, its number in its
list, the name of the image's file or the id of its category, and the image's group as JSON."""


class _Objects(msgspec.Struct, gc=False):
    """Members of an annotation that are not its category, such as the outline of an object."""

    bbox: msgspec.Raw = _NULL
    segmentation: msgspec.Raw = _NULL
    keypoints: msgspec.Raw = _NULL
    segments_info: msgspec.Raw = _NULL
    caption: msgspec.Raw = _NULL


def read_coco_labels(images: Path, scratch: Path, options: SourceOptions) -> Source | None:
    """List the images of such files with the categories of their annotations.

    None if there are other annotations, or some have boxes. An image whose annotations have several
    categories makes all labels lists. Labels are numbered in the order of the categories' ids. Of
    several files, each is a split by its name.
    """
    files = list[AnyPath]()
    for argument in options.annotations or ():
        kind, _, path = str(argument).partition(":")
        if kind != "coco" or not _has_labels_alone(as_path(path)):
            return None
        files.append(as_path(path))
    rows_path = scratch / files[0].name
    rows, categories = _Rows(scratch, by=4), list[dict[str, str]]()
    for number, file in enumerate(files):
        categories.append(_read(file, number, rows, options.group_by))
    with rows_path.open("w", encoding="utf-8") as target:
        has_several = _write(target, rows, files, categories, options.group_by)
    options = replace(options, annotations=(), path_column=_PATH, label_column=_LABEL)
    if has_several:
        options = replace(options, multi_label=SEVERAL)
    listed = list_directory(str(images))
    table = images / files[0].name
    source = read_table(table, None, scratch, options, {"": rows_path}, listed)
    names = ", ".join(printable(file.name) for file in files)
    notice = f"labels are the categories of images in {names}"
    labels = tuple(dict.fromkeys(name for names in categories for name in _in_order(names)))
    source = replace(source, labels=labels, notices=(notice, *source.notices))
    return with_labels(source, options, str(images), scratch)


def _has_labels_alone(file: AnyPath) -> bool:
    """Return whether a file has annotations, and each of them only names a category."""
    if not file.is_file():
        return False
    found = False
    with os_errors_as(SourceError, file), open_regular(file) as opened:
        for _, part in JsonFile(opened, file).parts({"annotations"}):
            for one in () if part is None else part.decode(_Objects):
                values = (one.bbox, one.segmentation, one.keypoints)
                other_kind = one.segments_info != _NULL or one.caption != _NULL
                if other_kind or any(bytes(value) not in _NONE for value in values):
                    return False
                found = True
    return found


def _read(file: AnyPath, number: int, rows: _Rows, group_by: str | None) -> dict[str, str]:
    """Add the images and annotations of a file; return the names of its categories by id."""
    names = dict[str, str]()
    with os_errors_as(SourceError, file), open_regular(file) as opened:
        for name, part in JsonFile(opened, file).parts({"images", "annotations", "categories"}):
            elements = () if part is None else part.decode(dict[str, Any])
            for at, element in enumerate(elements, 0 if part is None else part.first):
                where = f"{name}[{at}]"
                if name == "categories":
                    label = element.get("name")
                    if not isinstance(label, str) or not label.strip():
                        raise SourceError(f"{where} has no name", path=file)
                    names[_id(element, "id", where, file)] = label.strip()
                elif name == "images":
                    path = element.get(_PATH)
                    if not isinstance(path, str) or not path:
                        raise SourceError(f"{where} has no {_PATH}", path=file)
                    group = json.dumps(element.get(group_by)) if group_by in element else ""
                    rows.add((number, _id(element, "id", where, file), _IMAGE, at, path, group))
                else:
                    image = _id(element, "image_id", where, file)
                    category = _id(element, "category_id", where, file)
                    rows.add((number, image, _ANNOTATION, at, category, ""))
    return names


def _in_order(names: Mapping[str, str]) -> Sequence[str]:
    """Return the names of categories in the order of their ids, or else of the file."""
    numeric = all(key.isascii() and key.isdecimal() and len(key) < 19 for key in names)
    return [names[key] for key in (sorted(names, key=int) if numeric else names)]


def _id(element: Mapping[str, Any], member: str, where: str, file: AnyPath) -> str:
    value = element.get(member)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SourceError(f"{where} has no {member}", path=file)
    return str(value)


def _write(
    target: IO[str],
    rows: _Rows,
    files: Sequence[AnyPath],
    categories: Sequence[Mapping[str, str]],
    group_by: str | None,
) -> bool:
    """Write a line of JSON per image; return whether any has several labels."""
    has_several = False
    for (number, key), group in groupby(rows, key=itemgetter(0, 1)):
        paths, labels = list[tuple[str, str]](), dict[str, None]()
        for _, _, kind, at, text, group_value in group:
            if kind == _IMAGE:
                paths.append((text, group_value))
            elif text in categories[number]:
                labels[categories[number][text]] = None
            else:
                shown = printable(text[:_SHOWN])
                what = f"annotations[{at}] has category {shown}, which is not in categories"
                raise SourceError(what, path=files[number])
        has_several |= len(labels) > 1
        split = split_in_name(files[number].name) if len(files) > 1 else None
        for path, group_value in paths or [(f"image {key} of {files[number].name}", "")]:
            row = {_PATH: path, _LABEL: SEVERAL.join(labels), "split": split or ""}
            if group_by is not None and group_value:
                row[group_by] = json.loads(group_value)
            target.write(json.dumps(row) + "\n")
    return has_several
