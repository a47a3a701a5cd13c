"""Tables of boxes, one in each row: CSV with names of columns, RetinaNet's and AutoML's without."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.records.shard_sets import check_split_name
from tfrtool.sources.annotations.annotation_reader import (
    BAD_BOX,
    FLAGS,
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    ParsedImage,
    ParsedObject,
    check_splits,
    number_classes,
    numbers_of,
    pixels_of,
    split_in_name,
)
from tfrtool.sources.folders.listing import SPLIT_NAMES, is_image_name
from tfrtool.sources.formats.text_rows import DELIMITERS, csv_rows
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    BoxKind,
    box_columns,
    check_column_count,
    find_columns,
    plain_name,
    quoted,
    sort_labels,
)
from tfrtool.storage.limits import MAX_IMAGE_OBJECTS, MAX_PATH_LENGTH
from tfrtool.storage.opening import open_regular
from tfrtool.storage.sorted_rows import SortedRows

_SPLITS = {**SPLIT_NAMES, "validate": "validation", "unassigned": "", "": ""}
_IMAGES = ("imageid", "imagename", "img")
_CLASSES = ("labelname", "categoryname")
_FLAGS = {
    "truncated": ("truncated", "istruncated"),
    "difficult": ("difficult",),
    "crowd": ("isgroupof", "iscrowd"),
}
_AUTOML = 8
"""Coordinates of AutoML: x and y of four corners, of which two may be empty."""

_Row = tuple[str, int, int, str, tuple[str, ...], tuple[Any, ...] | None]
"""A row: its image, table, number, split, the image's size, and the object if any: its class, box
and flags, and what is wrong."""


class _Form(NamedTuple):
    """Where in a row everything is."""

    path: int
    label: int
    box: Sequence[int]
    kind: BoxKind = BoxKind.CORNERS
    split: int | None = None
    size: Sequence[int] = ()  # width and height of the image
    flags: Mapping[str, int] = {}
    cells: int = 0  # at most; 0 for any number of them
    header: bool = False


class _OtherTableError(SourceError):
    """A table has no boxes."""


@dataclass
class _BoxTable:
    """A table of boxes, and what is known of it once it is read."""

    path: Path
    split: str | None  # in its name
    required: bool = True  # whether it must have boxes
    form: _Form = field(default_factory=lambda: _Form(0, 0, ()))
    has_splits: bool = False  # in its rows
    shares: int = 0  # boxes that are plainly in shares
    pixels: int = 0  # boxes that are plainly in pixels

    @property
    def in_shares(self) -> bool:
        """Whether boxes are: those of AutoML, and where most lie between 0 and 1."""
        return not self.form.cells or self.shares > self.pixels


class CsvBoxReader(AnnotationReader):
    """Reads tables of any length, sorted by images in a scratch folder; see `AnnotationReader`."""

    def __init__(self, places: Sequence[Path], scratch: Path) -> None:
        """Take the paths of tables, or of folders of tables."""
        super().__init__()
        self._places, self._rows = places, SortedRows[_Row](scratch)
        self._classes, self._has_splits = set[str](), False
        self._tables = list[_BoxTable]()

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images of all rows, by name; and rows that name none, or are too many."""
        named = dict[Path, str | None]()
        for table in self._listed():
            try:
                self._read(table, len(self._tables))
            except _OtherTableError as error:
                if table.required:
                    raise
                self.ignored.add(LeftOut(key=table.path.name, reason=error.what))
                continue
            self._tables.append(table)
            if not table.has_splits:
                named[table.path] = table.split
        if not self._tables:
            found = next((one.reason for one in self.ignored.kept), None)
            path = self._places[0]
            raise SourceError("no tables of boxes", path=path, expected="*.csv", found=found)
        if self._has_splits:
            named = {}  # images without a split are listed one by one
        check_splits(named)
        for name, group in groupby(self._rows, key=itemgetter(0)):
            rows = iter(group)
            if name:
                yield self._image(name, [*islice(rows, MAX_IMAGE_OBJECTS)])
            problem = f"image has more than {MAX_IMAGE_OBJECTS:,} objects"
            for row in rows:
                where = self._where(row)
                reason = f"{where}: {problem if name else 'no image name'}"
                yield LeftOut(key=name or where, reason=reason)
        for table in self._tables:
            if table.in_shares and table.form.cells:
                what = "boxes are read as fractions of the image size"
                alone = len(self._tables) == 1
                self.notices.append(what if alone else f"{printable(table.path.name)}: {what}")

    def _listed(self) -> Iterator["_BoxTable"]:
        """Yield the tables at all places; one table alone has no split in its name."""
        for place in self._places:
            if not place.is_dir():
                alone = len(self._places) == 1
                yield _BoxTable(place, None if alone else split_in_name(place.name))
                continue
            for key in AnnotationFolder(place, None).files(_is_table_name):
                yield _BoxTable(place / key, split_in_name(key), required=False)

    def _read(self, table: "_BoxTable", at: int) -> None:
        with os_errors_as(SourceError, table.path), open_regular(table.path) as file:
            delimiter, table.form = _form_of(file, table.path)
            every = enumerate(csv_rows(file, table.path, delimiter), start=1)
            told = ((number, cells) for number, cells in every if any(cells))
            for number, cells in islice(told, int(table.form.header), None):
                self._rows.add(self._row(table, at, number, cells))

    def _where(self, row: _Row) -> str:
        """Return what messages call a row."""
        name = f"{self._tables[row[1]].path.name}, " if len(self._tables) > 1 else ""
        return f"{printable(name)}row {row[2]}"

    def classes(self) -> Mapping[str, int]:
        """Return the classes, sorted by name, or by value if all are integers."""
        return number_classes(sort_labels(self._classes), self._places[0])

    def _row(self, table: "_BoxTable", at: int, number: int, cells: list[str]) -> _Row:
        """Return what counts of a row; what it names is not looked for yet."""
        form = table.form

        def cell(at: int | None) -> str:
            return cells[at].strip() if at is not None and at < len(cells) else ""

        name, label, split = cell(form.path), cell(form.label), cell(form.split).lower()
        split = _SPLITS.get(split, split)
        table.has_splits |= bool(split)
        split = split or table.split or ""
        self._has_splits |= bool(split)
        sides = [*filter(None, map(cell, form.box))]
        box = _corners(numbers_of(sides) or (), form.kind)
        if box:
            inside = all(0 <= side <= 1 for side in box)
            table.shares += inside and any(0 < side < 1 for side in box)
            table.pixels += not inside  # and a box from 0 to 1 may be either
        problem = label_problem(label)
        if problem is None:
            self._classes.add(label)
        else:
            problem = f"class '{printable(label[:TEXT_SHOWN])}' {problem}" if label else "no class"
        more = bool(form.cells) and any(cells[form.cells :])
        if more:
            problem = f"{len(cells)} cells, but the table has {form.cells} columns"
        flags = tuple(FLAGS.get(cell(at).lower()) for at in form.flags.values())
        one = (label, box, flags, problem) if label or sides or more else None
        name = name if len(name) <= MAX_PATH_LENGTH else ""
        return name, at, number, split, tuple(map(cell, form.size)), one

    def _image(self, name: str, rows: Sequence[_Row]) -> ParsedImage:
        """Return the image of all rows that name it."""
        sizes, splits = {row[4] for row in rows if any(row[4])}, {row[3] for row in rows}
        width, height, problem = pixels_of(*next(iter(sizes), ()))
        for what, told in (("size", sizes), ("split", splits)):
            if len(told) > 1:
                problem = f"rows of this image disagree on its {what}"
        split = rows[0][3]
        if self._has_splits and not split:
            problem = problem or "no split, although others have one"
        try:
            check_split_name(split or "train")
        except UsageError:
            problem = problem or f"invalid split name {printable(split[:TEXT_SHOWN])!r}"
        return ParsedImage(
            name=name,
            where=self._where(rows[0]),
            width=width,
            height=height,
            objects=[self._object(row, row[5]) for row in rows if row[5]],
            split=split or None,
            problem=problem,
        )

    def _object(self, row: _Row, values: tuple[Any, ...]) -> ParsedObject:
        label, box, flags, problem = values
        table = self._tables[row[1]]
        fields = self.fields(**dict(zip(table.form.flags, flags, strict=True)))
        problem = problem or (None if box else BAD_BOX)
        return ParsedObject(
            self._where(row), label, box or NO_BOX, fields, problem, table.in_shares
        )


def _is_table_name(key: str) -> bool:
    return key.lower().endswith((".csv", ".tsv"))


def is_box_table(path: Path) -> bool:
    """Return whether a local file can be read, and is a table of boxes."""
    with suppress(OSError, SourceError), open_regular(path) as file:
        _form_of(file, path)
        return True
    return False


def _form_of(file: BinaryIO, table: Path) -> tuple[str, _Form]:
    """Return the separator of a table, and the form of its rows; the first row tells both."""
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
    """Return the left, upper, right and lower side of a box; nothing if they aren't told."""
    if len(sides) == _AUTOML:
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
        split=names.index(usual.split) if usual.split else None,
        size=size if len(size) == 2 else (),
        flags={name: at[one] for name, some in _FLAGS.items() for one in some if one in at},
        cells=len(names),
        header=True,
    )


def _nameless(cells: Sequence[str]) -> _Form | None:
    """Return the form of a table that starts with a box; None if it isn't one of those known."""
    if len(cells) == 6 and is_image_name(cells[0]):
        return _Form(path=0, label=5, box=range(1, 5), cells=6)
    start = int(bool(cells) and cells[0].strip().lower() in _SPLITS)
    if start + 6 <= len(cells) <= start + 2 + _AUTOML and is_image_name(cells[start]):
        box = range(start + 2, start + 2 + _AUTOML)
        return _Form(path=start, label=start + 1, box=box, split=0 if start else None)
    return None
