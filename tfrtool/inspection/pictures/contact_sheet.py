"""Contact sheets of shards: the first images of each, with labels, and with what is broken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tfrtool.errors import ShardError, UsageError, WriteError, os_errors_as, printable
from tfrtool.images.sheet import (
    FORMAT_BY_SUFFIX,
    MAX_THUMB,
    MIN_THUMB,
    SheetLayout,
    Tile,
    draw_sheet,
    encode_sheet,
)
from tfrtool.inspection.pictures.pictures import (
    Casting,
    LabelledPicture,
    PictureOptions,
    cast_shard,
    pictures_of,
)
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.reader import read_records
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import open_shard
from tfrtool.storage.appearing import new_file
from tfrtool.storage.locations import as_path

__all__ = ["BrokenImage", "SheetOptions", "SheetReport", "contact_sheet"]

Progress = Callable[[int, int], None]

_OF_RECORDS = (
    FaultKind.LENGTH_CRC,
    FaultKind.PAYLOAD_CRC,
    FaultKind.TRUNCATED,
    FaultKind.OVERSIZED_LENGTH,
)
_FEATURES_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetOptions:
    """What goes on a contact sheet.

    Attributes:
        limit: how many images at most, evenly from the start of each shard; at least 1.
        columns: how many pictures stand side by side; None for about a square.
        thumb: the side of the square that a picture fits into, 32 to 1024 pixels.
        image: the feature that holds the image; None finds out.
        label: the feature that labels it; None finds out.
        overwrite: whether a file that is there already is replaced.
    """

    limit: int = 100
    columns: int | None = None
    thumb: int = 128
    image: str | None = None
    label: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.limit < 1 or (self.columns is not None and self.columns < 1):
            raise UsageError("a contact sheet has at least one picture and one column")
        if not MIN_THUMB <= self.thumb <= MAX_THUMB:
            raise UsageError(f"thumbnails are {MIN_THUMB} to {MAX_THUMB} pixels, not {self.thumb}")
        layout = self.layout(self.limit)
        if not layout.fits:
            width, height = layout.size
            raise UsageError(
                f"{self.limit:,} pictures would make a sheet of {width:,} x {height:,} pixels",
                hint="ask for fewer or smaller ones",
            )

    def layout(self, count: int, title: str = "") -> SheetLayout:
        """Return the layout for so many pictures."""
        return SheetLayout(count=count, columns=self.columns, thumb=self.thumb, title=title)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenImage:
    """A record that is marked on the sheet, since its image can't be shown.

    Attributes:
        path: its shard.
        record: its index, from 0; None where it can't be known.
        offset: where its header starts in the uncompressed stream, in bytes.
        reason: why.
    """

    path: Path
    record: int | None
    offset: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return it as the command line prints it."""
        return {
            "path": str(self.path),
            "record": self.record,
            "offset": self.offset,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetReport:
    """What a contact sheet shows.

    Attributes:
        out: where it is.
        layout: its measures.
        shards: each shard and how many tiles it has.
        broken: those of the tiles that show a red cross.
        faults: damage of the files as such, for which there is no tile.
        without: shards in which no feature holds an image.
        features: the feature or feature list of each shard that was drawn.
        others: further features that hold encoded images.
        guessed: how many pictures have a size that was guessed from their number of bytes.
    """

    out: Path
    layout: SheetLayout
    shards: tuple[tuple[Path, int], ...]
    broken: tuple[BrokenImage, ...] = ()
    faults: tuple[tuple[Path, Fault], ...] = ()
    without: tuple[Path, ...] = ()
    features: Mapping[Path, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    guessed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the report as ``--json`` prints it."""
        return {
            "out": str(self.out),
            "images": self.layout.count,
            "broken": [broken.to_json() for broken in self.broken],
            "columns": self.layout.across,
            "rows": self.layout.down,
            "width": self.layout.size[0],
            "height": self.layout.size[1],
            "guessed": self.guessed,
            "shards": [
                {"path": str(path), "images": count, "feature": self.features.get(path)}
                for path, count in self.shards
            ],
            "other_features": list(self.others),
            "without": [str(path) for path in self.without],
            "faults": [
                {
                    "path": str(path),
                    "kind": fault.kind.value,
                    "offset": fault.offset,
                    "record": fault.record,
                    "message": fault.message,
                }
                for path, fault in self.faults
            ],
        }


def contact_sheet(
    shards: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: SheetOptions = SheetOptions(),
    on_progress: Progress | None = None,
) -> SheetReport:
    """Draw the first images of each shard on one sheet, and save it.

    Shards are read no farther than is needed; only thumbnails are kept.

    Args:
        shards: files, patterns and directories, one or several, in the order in which they are
            shown.
        out: the sheet's file; its end decides the format.
        options: how many pictures, how large, of which feature.
        on_progress: called with the number of pictures so far and the most that there may be.

    Raises:
        UsageError: ``out`` can't be a sheet, or is there already; or no record has the label.
        ShardError: a file can't be read, or there is no image in any of them.
        WriteError: the sheet can't be written.
    """
    shards, out = find_shards(shards), as_path(out)
    format_ = _check_out(out, shards, options.overwrite)
    gathering = _Gathering(options, many=len(shards) > 1)
    taken = 0
    for number, path in enumerate(shards):
        # An even share of the limit, and what the shards before this one could not fill.
        share = (number + 1) * options.limit // len(shards) - taken
        for _ in gathering.add_shard(number, path, share):
            taken += 1
            if on_progress is not None:
                on_progress(taken, options.limit)
    if not gathering.tiles:
        raise gathering.nothing(shards)
    gathering.check_label(shards)
    layout = options.layout(len(gathering.tiles), _title(shards, gathering))
    _save(out, encode_sheet(draw_sheet(gathering.tiles, layout), format_), options.overwrite)
    return SheetReport(
        out=out,
        layout=layout,
        shards=tuple(gathering.counts),
        broken=tuple(gathering.broken),
        faults=tuple(gathering.faults),
        without=tuple(path for path, _ in gathering.without),
        features=gathering.features,
        others=tuple(name for name in gathering.others if name not in gathering.features.values()),
        guessed=gathering.guessed,
    )


class _Gathering:
    """The tiles of a sheet, and all that is to be told of them."""

    def __init__(self, options: SheetOptions, *, many: bool) -> None:
        self._options = PictureOptions(box=options.thumb, image=options.image, label=options.label)
        self._many = many
        self.tiles: list[Tile] = []
        self.counts: list[tuple[Path, int]] = []
        self.broken: list[BrokenImage] = []
        self.faults: list[tuple[Path, Fault]] = []
        self.without: list[tuple[Path, Casting]] = []
        self.features: dict[Path, str] = {}
        self.others: dict[str, None] = {}
        self.guessed = 0
        self._others: dict[str, None] = {}

    def add_shard(self, number: int, path: Path, limit: int) -> Iterator[None]:
        """Add up to ``limit`` tiles; yields after each."""
        before = len(self.tiles)
        if limit > 0:
            yield from self._add_shard(number, path, limit)
        self.counts.append((path, len(self.tiles) - before))

    def _add_shard(self, number: int, path: Path, limit: int) -> Iterator[None]:
        casting = cast_shard(path, self._options)
        if casting.image is None:
            self.faults += [(path, fault) for fault in casting.faults]
            if casting.features or not casting.faults:
                self.without.append((path, casting))
            return
        self.features[path] = casting.image
        self.others.update(dict.fromkeys(casting.others))
        # One of them may be the label that was asked for, and not be found in another shard.
        self._others.update(dict.fromkeys(casting.features))
        self._others.pop(casting.image, None)
        before = len(self.tiles)
        with open_shard(path) as file:
            for item in read_records(file):
                if isinstance(item, Fault) and item.kind not in _OF_RECORDS:
                    self.faults.append((path, item))
                    continue
                if isinstance(item, Fault):
                    self._add_fault(number, path, item)
                    yield
                else:
                    for picture in islice(
                        pictures_of(item, casting, self._options),
                        limit - (len(self.tiles) - before),
                    ):
                        self._add(number, path, picture, casting.image)
                        yield
                if len(self.tiles) - before == limit:
                    break

    def _add(self, number: int, path: Path, found: LabelledPicture, feature: str) -> None:
        picture = found.picture
        self.guessed += picture.guessed
        if picture.problem is not None:
            reason = picture.problem
            if found.place:
                reason = f"feature {feature!r}{found.place}: {reason}"
            self.broken.append(
                BrokenImage(path=path, record=found.record, offset=found.offset, reason=reason)
            )
        self.tiles.append(
            Tile(
                image=picture.image,
                label=found.label,
                size=found.size,
                number=self._number(number, found.record) + found.place,
                problem=picture.problem,
            )
        )

    def _add_fault(self, number: int, path: Path, fault: Fault) -> None:
        reason = f"{fault.kind.value}: {fault.message}"
        self.broken.append(
            BrokenImage(path=path, record=fault.record, offset=fault.offset, reason=reason)
        )
        self.tiles.append(
            Tile(
                image=None,
                label="damaged record",
                number=self._number(number, fault.record),
                problem=fault.kind.value,
            )
        )

    def check_label(self, shards: Sequence[Path]) -> None:
        """Raise UsageError if a label was asked for, and nothing on the sheet can have it."""
        label = self._options.label
        if label is not None and label not in self._others:
            raise UsageError(
                f"no feature {label!r} that could label an image",
                path=shards[0],
                expected=f"one of {_listed(self._others)}",
            )

    def _number(self, shard: int, record: int | None) -> str:
        index = "?" if record is None else str(record)
        return f"{shard}:{index}" if self._many else f"#{index}"

    def nothing(self, shards: Sequence[Path]) -> ShardError:
        """Return the error for shards without a single image."""
        if self.faults and not self.without:
            path, fault = self.faults[0]
            return ShardError(f"no image can be read: {fault.message}", path=path)
        wanted = self._options.image
        what = "no feature holds an image" if wanted is None else f"no feature {wanted!r}"
        path, casting = self.without[0] if self.without else (shards[0], Casting())
        listed = _listed(casting.features)
        return ShardError(
            what,
            path=path,
            found=f"the features {listed}" if listed else "no tf.train.Example",
            hint="--feature names the one that holds pixels" if listed else None,
        )


def _listed(names: Iterable[str]) -> str:
    shown = [printable(name) for name in names]
    return ", ".join(shown[:_FEATURES_NAMED]) + (", ..." if len(shown) > _FEATURES_NAMED else "")


def _title(shards: Sequence[Path], gathering: _Gathering) -> str:
    count = len(gathering.tiles)
    name = shards[0].name if len(shards) == 1 else f"{len(shards):,} shards"
    broken = f", {len(gathering.broken):,} broken" if gathering.broken else ""
    return f"{name}: {count:,} image{'' if count == 1 else 's'}{broken}"


def _check_out(out: Path, shards: Sequence[Path], overwrite: bool) -> str:
    format_ = FORMAT_BY_SUFFIX.get(out.suffix.lower())
    if format_ is None:
        raise UsageError(
            "the end of the sheet's name is no picture format",
            path=out,
            expected=", ".join(FORMAT_BY_SUFFIX),
            found=repr(out.suffix),
        )
    with os_errors_as(WriteError, out, "can't be written"):
        if out.is_dir():
            raise UsageError("is a directory, where the sheet should go", path=out)
        if not out.parent.is_dir():
            raise UsageError("the directory for the sheet is not there", path=out.parent)
        if out.exists():
            if any(out.samefile(path) for path in shards):
                raise UsageError("is one of the shards", path=out)
            if not overwrite:
                raise UsageError("is there already", path=out, hint="--overwrite replaces it")
    return format_


def _save(out: Path, data: bytes, overwrite: bool) -> None:
    failing = os_errors_as(WriteError, out, "can't be written")
    with failing, new_file(out, replace=overwrite) as file:
        file.write(data)
