"""Tables of boxes, one in each row: CSV with names of columns, RetinaNet's and AutoML's without."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.records.shard_sets import SPLIT_NAMES, check_split_name
from tfrtool.sources.annotations.annotation_reader import (
    BAD_BOX,
    FLAGS,
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    AnnotationRequest,
    ParsedImage,
    ParsedObject,
    check_splits,
    number_classes,
    numbers_of,
    pixels_of,
    split_in_name,
)
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.formats.csv_rows import DELIMITERS, csv_rows
from tfrtool.sources.formats.table_limits import check_column_count
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    BoxKind,
    box_columns,
    find_columns,
    plain_name,
    quoted,
    sort_labels,
)
from tfrtool.storage.limits import MAX_IMAGE_OBJECTS, MAX_PATH_LENGTH
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.sorted_rows import SortedRows

_SPLITS = {**SPLIT_NAMES, "validate": "validation", "unassigned": "", "": ""}
_IMAGES, _CLASSES = ("imageid", "imagename", "img"), ("labelname", "categoryname")
_FLAGS = {
    "truncated": "truncated",
    "istruncated": "truncated",
    "difficult": "difficult",
    "isgroupof": "crowd",
    "iscrowd": "crowd",
}
_RETINANET = ("path", "xmin", "ymin", "xmax", "ymax", "label")
_CORNERS = 8
"""Coordinates of AutoML: x and y of four corners; two of them may be empty."""

_Row = tuple[str, int, int, str, tuple[str, ...], tuple[Any, ...] | None]
"""A row: its image, table, number, split, the image's size, and the object if any: its class, box
and flags, and what is wrong."""


class _Form(NamedTuple):
    path: int
    label: int
    box: Sequence[int]
    kind: BoxKind = BoxKind.CORNERS
    split: int = -1  # for none
    size: Sequence[int] = ()  # width and height of the image
    flags: Mapping[str, int] = {}
    cells: int = 0  # at most; 0 for AutoML, whose boxes are in shares
    header: bool = False


class _OtherTableError(SourceError):
    """A table has no boxes."""


class CsvBoxReader(AnnotationReader):
    """Reads tables of any length, sorted by images in a scratch folder; see `AnnotationReader`."""

    @classmethod
    def open(cls, request: AnnotationRequest) -> Mapping[AnyPath, AnnotationReader]:
        """Return one reader of all tables."""
        paths = request.files()
        return {paths[0]: cls(paths, request.scratch)}

    def __init__(self, places: Sequence[AnyPath], scratch: Path) -> None:
        """Take the paths of tables, or of folders of tables."""
        super().__init__()
        self._places, self._rows = places, SortedRows[_Row](scratch)
        self._classes = set[str]()
        self._tables = list[tuple[str, bool]]()  # their names, and whether boxes are in shares

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images of all rows, by name; and rows that name none, or are too many."""
        named, has_splits = dict[AnyPath, str | None](), False
        for path, split, required in self._listed():
            try:
                own_splits = self._read(path, split or "")
            except _OtherTableError as error:
                if required:
                    raise
                self.ignored.add(LeftOut(key=path.name, reason=error.what))
                continue
            has_splits |= own_splits or split is not None
            if not own_splits:
                named[path] = split
        if not self._tables:
            found = next((one.reason for one in self.ignored.entries), None)
            what, first = "no tables of boxes", self._places[0]
            raise SourceError(what, path=first, expected="*.csv", found=found)
        if not has_splits or all(named.values()) or len(named) == len(self._tables):
            check_splits(named)  # else images without a split are listed one by one
        for name, group in groupby(self._rows, key=itemgetter(0)):
            rows = iter(group)
            if name:
                yield self._image(name, [*islice(rows, MAX_IMAGE_OBJECTS)], has_splits)
            problem = f"image has more than {MAX_IMAGE_OBJECTS:,} objects"
            for row in rows:
                where = self._where(row)
                reason = f"{where}: {problem if name else 'no image name'}"
                yield LeftOut(key=name or where, reason=reason)

    def _listed(self) -> Iterator[tuple[AnyPath, str | None, bool]]:
        """Yield tables, the splits in their names, and whether they must have boxes."""
        for path in self._places:
            if not path.is_dir():
                yield path, split_in_name(path.name) if len(self._places) > 1 else None, True
                continue
            for key in AnnotationFolder(path, None).files(_is_table_name):
                yield path / key, split_in_name(key), False

    def _read(self, path: AnyPath, split: str) -> bool:
        at, shares, has_splits = len(self._tables), 0, False
        with os_errors_as(SourceError, path), open_regular(path) as file:
            delimiter, form = _form_of(file, path)
            every = enumerate(csv_rows(file, path, delimiter), start=1)
            rows = ((number, cells) for number, cells in every if any(cells))
            for number, cells in islice(rows, int(form.header), None):
                row = self._row(form, at, number, [cell.strip() for cell in cells])
                has_splits |= bool(row[3])
                self._rows.add((*row[:3], row[3] or split, *row[4:]))
                if row[5] and (box := row[5][1]):
                    is_fraction = all(0 <= side <= 1 for side in box)
                    # A box from 0 to 1 may be either.
                    shares += any(0 < side < 1 for side in box) if is_fraction else -1
        self._tables.append((path.name, not form.cells or shares > 0))
        if shares > 0 and form.cells:
            self.notices.append(
                f"{printable(path.name)}: boxes are read as fractions of the image size"
            )
        return has_splits

    def _where(self, row: _Row) -> str:
        name = f"{self._tables[row[1]][0]}, " if len(self._tables) > 1 else ""
        return f"{printable(name)}row {row[2]}"

    def classes(self) -> Mapping[str, int]:
        """Return the classes, sorted by name, or by value if all are integers."""
        return number_classes(sort_labels(self._classes), self._places[0])

    def _row(self, form: _Form, table: int, number: int, cells: list[str]) -> _Row:
        """Return what counts of a row; what it names is not looked for yet."""
        known = dict(enumerate(cells))
        name, label = known.get(form.path, ""), known.get(form.label, "")
        split = known.get(form.split, "").lower()
        sides = [known[at] for at in form.box if known.get(at)]
        box = _corners(numbers_of(sides) or (), form.kind)
        problem = label_problem(label)
        if problem is None:
            self._classes.add(label)
        else:
            problem = f"class '{printable(label[:TEXT_SHOWN])}' {problem}" if label else "no class"
        if more := bool(form.cells) and any(cells[form.cells :]):
            problem = f"{len(cells)} cells, but the table has {form.cells} columns"
        flags = {flag: FLAGS.get(known.get(at, "").lower()) for flag, at in form.flags.items()}
        object_cells = (label, box, flags, problem) if label or sides or more else None
        size = tuple(known.get(at, "") for at in form.size)
        name = name if len(name) <= MAX_PATH_LENGTH else ""
        return name, table, number, _SPLITS.get(split, split), size, object_cells

    def _image(self, name: str, rows: Sequence[_Row], has_splits: bool) -> ParsedImage:
        sizes, splits = {row[4] for row in rows if any(row[4])}, {row[3] for row in rows}
        width, height, problem = pixels_of(*next(iter(sizes), ()))
        for what, values in (("size", sizes), ("split", splits)):
            if len(values) > 1:
                problem = f"rows of this image disagree on its {what}"
        split = rows[0][3]
        if has_splits and not split:
            problem = problem or "no split, although others have one"
        try:
            check_split_name(split or "train")
        except UsageError:
            problem = problem or f"invalid split name {printable(split[:TEXT_SHOWN])!r}"
        objects = [self._object(row, row[5]) for row in rows if row[5]]
        where = self._where(rows[0])
        return ParsedImage(
            name, where, objects, width, height, split=split or None, problem=problem
        )

    def _object(self, row: _Row, values: tuple[Any, ...]) -> ParsedObject:
        label, box, flags, problem = values
        problem = problem or (None if box else BAD_BOX)
        fields, is_relative = self.fields(**flags), self._tables[row[1]][1]
        return ParsedObject(self._where(row), label, box or NO_BOX, fields, problem, is_relative)


def _is_table_name(key: str) -> bool:
    return key.lower().endswith((".csv", ".tsv"))


def _form_of(file: BinaryIO, table: AnyPath) -> tuple[str, _Form]:
    """Return the separator of a table, and the form of its rows, from the first row."""
    widest: list[str] = []
    for delimiter in DELIMITERS:
        first = next(filter(any, csv_rows(file, table, delimiter)), [])
        check_column_count(len(first), table)
        if form := _named(first) or _nameless(first):
            return delimiter, form
        widest = max(widest, first, key=len)
    raise _OtherTableError(
        "no image, class and box columns",
        path=table,
        expected="columns such as filename, class, xmin, ymin, xmax, ymax",
        found=quoted(widest),
    )


def _corners(sides: Sequence[float], kind: BoxKind) -> tuple[float, ...]:
    """Return the left, upper, right and lower side of a box; nothing if there isn't one."""
    if len(sides) == _CORNERS:
        ends = sides[::2], sides[1::2]
        return *map(min, ends), *map(max, ends)
    if len(sides) != 4:
        return ()
    x, y, width, height = sides
    if kind is BoxKind.SIZE:
        return x, y, x + width, y + height
    if kind is BoxKind.CENTRE:
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    return x, y, width, height


def _named(names: Sequence[str]) -> _Form | None:
    """Return the form of a table with a row of names; None if it isn't one."""
    at = {plain_name(name): place for place, name in enumerate(names)}
    usual, (kind, box) = find_columns(names), box_columns(names) or (None, [])
    sides = [names.index(name) for name in box]
    paths, labels = (
        [names.index(name)] if name else [at[one] for one in others if one in at]
        for name, others in ((usual.path, _IMAGES), (usual.label, _CLASSES))
    )
    if kind is None or not paths or not labels:
        return None
    size = [at[side] for side in ("width", "height") if at.get(side, sides[2]) not in sides]
    return _Form(
        path=paths[0],
        label=labels[0],
        box=sides,
        kind=kind,
        split=names.index(usual.split) if usual.split else -1,
        size=size if len(size) == 2 else (),
        flags={flag: at[name] for name, flag in _FLAGS.items() if name in at},
        cells=len(names),
        header=True,
    )


def _nameless(cells: Sequence[str]) -> _Form | None:
    """Return the form of a table that starts with a box; None if it isn't one of those known."""
    if len(cells) == len(_RETINANET) and is_image_name(cells[0]):
        form = _named(_RETINANET)
        return form and form._replace(header=False)
    start = int(bool(cells) and cells[0].strip().lower() in _SPLITS)
    if start + 6 <= len(cells) <= start + 2 + _CORNERS and is_image_name(cells[start]):
        return _Form(start, start + 1, range(start + 2, start + 2 + _CORNERS), split=start - 1)
    return None
