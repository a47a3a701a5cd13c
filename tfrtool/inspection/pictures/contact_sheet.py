"""Contact sheets of shards: the first images of each, with labels, and with what is broken."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tfrtool.errors import ShardError, UsageError, WriteError, os_errors_as, printable
from tfrtool.images.sheet import (
    FORMAT_BY_SUFFIX,
    SheetLayout,
    Tile,
    draw_sheet,
    encode_sheet,
)
from tfrtool.inspection.pictures.pictures import Casting, cast_shard, pictures_of
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.reader import read_records
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import open_shard
from tfrtool.storage.appearing import new_file
from tfrtool.storage.locations import as_path
from tfrtool.storage.progress import OnProgress, Progress, silent

_OF_RECORDS = (
    FaultKind.LENGTH_CRC,
    FaultKind.PAYLOAD_CRC,
    FaultKind.TRUNCATED,
    FaultKind.OVERSIZED_LENGTH,
)
_FEATURES_NAMED = 8


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetShard:
    """What a contact sheet shows of a shard.

    Attributes:
        path: the shard.
        images: how many tiles it has.
        feature: the feature or feature list that was drawn; None where there is none.
    """

    path: Path
    images: int
    feature: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetReport:
    """What a contact sheet shows.

    Attributes:
        out: where it is.
        layout: its measures.
        broken: those of the tiles that show a red cross.
        guessed: how many pictures have a size that was guessed from their number of bytes.
        shards: what it shows of each shard.
        other_features: further features that hold encoded images.
        without: shards in which no feature holds an image.
        faults: damage of the files as such, for which there is no tile.
    """

    out: Path
    layout: SheetLayout
    broken: tuple[BrokenImage, ...]
    guessed: int
    shards: tuple[SheetShard, ...]
    other_features: tuple[str, ...]
    without: tuple[Path, ...]
    faults: tuple[LocatedFault, ...]


def contact_sheet(
    shards: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    limit: int = 100,
    columns: int | None = None,
    thumb: int = 128,
    feature: str | None = None,
    label: str | None = None,
    overwrite: bool = False,
    on_progress: OnProgress = silent,
) -> SheetReport:
    """Draw the first images of each shard on one sheet, and save it.

    Shards are read no farther than is needed; only thumbnails are kept.

    Args:
        shards: files, patterns and directories, one or several, in the order in which they are
            shown.
        out: the sheet's file; its end decides the format.
        limit: how many images at most, evenly from the start of each shard; at least 1.
        columns: how many pictures stand side by side; None for about a square.
        thumb: the side of the square that a picture fits into, 32 to 1024 pixels.
        feature: the feature that holds the image; None finds out.
        label: the feature that labels it; None finds out.
        overwrite: whether a file that is there already is replaced.
        on_progress: called after each picture, with the most that there may be.

    Raises:
        UsageError: ``out`` can't be a sheet, or is there already; or it would be too large; or no
            record has the label.
        ShardError: a file can't be read, or there is no image in any of them.
        WriteError: the sheet can't be written.
    """
    # Refused before anything is read.
    SheetLayout(images=limit, columns=-1 if columns == 0 else columns or 0, thumb=thumb)
    paths, out = find_shards(shards), as_path(out)
    format_ = _check_out(out, paths, overwrite)
    sheet = _Sheet(thumb, many=len(paths) > 1)
    found: list[SheetShard] = []
    for number, path in enumerate(paths):
        # An even share of the limit, and what the shards before this one could not fill.
        before = len(sheet.tiles)
        share = (number + 1) * limit // len(paths) - before
        casting = cast_shard(path, feature, label) if share else Casting()
        if share:
            for _ in islice(sheet.add_shard(number, path, casting), share):
                done = len(sheet.tiles)
                on_progress(Progress(what="drawing", done=done, total=limit, unit="images"))
        images = len(sheet.tiles) - before
        found.append(SheetShard(path=path, images=images, feature=casting.image))
    if not sheet.tiles:
        raise sheet.nothing(paths, feature)
    if label is not None and label not in sheet.labels:
        raise UsageError(
            f"no feature {label!r} that could label an image",
            path=paths[0],
            expected=f"one of {_listed(sheet.labels)}",
        )
    layout = SheetLayout(images=len(sheet.tiles), columns=columns or 0, thumb=thumb)
    name = paths[0].name if len(paths) == 1 else f"{len(paths):,} shards"
    broken = f", {len(sheet.broken):,} broken" if sheet.broken else ""
    title = f"{name}: {layout.images:,} image{'' if layout.images == 1 else 's'}{broken}"
    data = encode_sheet(draw_sheet(sheet.tiles, layout, title), format_)
    failing = os_errors_as(WriteError, out, "can't be written")
    with failing, new_file(out, replace=overwrite) as file:
        file.write(data)
    drawn = {shard.feature for shard in found}
    return SheetReport(
        out=out,
        layout=layout,
        broken=tuple(sheet.broken),
        guessed=sheet.guessed,
        shards=tuple(found),
        other_features=tuple(name for name in sheet.others if name not in drawn),
        without=tuple(path for path, _ in sheet.without),
        faults=tuple(sheet.faults),
    )


class _Sheet:
    """The tiles of a sheet, and all that is to be said of them."""

    def __init__(self, thumb: int, *, many: bool) -> None:
        self._thumb = thumb
        self._many = many
        self.tiles: list[Tile] = []
        self.broken: list[BrokenImage] = []
        self.faults: list[LocatedFault] = []
        self.without: list[tuple[Path, Casting]] = []
        self.guessed = 0
        self.others: dict[str, None] = {}
        self.labels: dict[str, None] = {}

    def add_shard(self, number: int, path: Path, casting: Casting) -> Iterator[None]:
        """Add tiles; yields after each."""
        if casting.image is None:
            self.faults += [LocatedFault(path=path, fault=fault) for fault in casting.faults]
            if casting.features or not casting.faults:
                self.without.append((path, casting))
            return
        self.others |= dict.fromkeys(casting.others)
        # One of them may be the label that was asked for, and not be found in another shard.
        self.labels |= dict.fromkeys(casting.features)
        self.labels.pop(casting.image, None)
        with open_shard(path) as file:
            for item in read_records(file):
                if not isinstance(item, Fault):
                    for found in pictures_of(item.payload, casting, self._thumb):
                        picture, reason = found.picture, found.picture.problem
                        self.guessed += picture.guessed
                        if reason is not None and found.place:
                            reason = f"feature {casting.image!r}{found.place}: {reason}"
                        tile = Tile(
                            image=picture.image,
                            label=found.label,
                            size=picture.size,
                            number=self._number(number, item.index) + found.place,
                            problem=picture.problem,
                        )
                        self._add(tile, path, item.index, item.offset, reason)
                        yield
                elif item.kind in _OF_RECORDS:
                    tile = Tile(
                        image=None,
                        label="damaged record",
                        number=self._number(number, item.record),
                        problem=item.kind.value,
                    )
                    reason = f"{item.kind.value}: {item.message}"
                    self._add(tile, path, item.record, item.offset, reason)
                    yield
                else:
                    self.faults.append(LocatedFault(path=path, fault=item))

    def _add(
        self, tile: Tile, path: Path, record: int | None, offset: int, reason: str | None
    ) -> None:
        self.tiles.append(tile)
        if reason is not None:
            self.broken.append(BrokenImage(path=path, record=record, offset=offset, reason=reason))

    def _number(self, shard: int, record: int | None) -> str:
        index = "?" if record is None else str(record)
        return f"{shard}:{index}" if self._many else f"#{index}"

    def nothing(self, shards: Sequence[Path], feature: str | None) -> ShardError:
        """Return the error for shards without a single image."""
        if self.faults and not self.without:
            first = self.faults[0]
            return ShardError(f"no image can be read: {first.fault.message}", path=first.path)
        path, casting = self.without[0] if self.without else (shards[0], Casting())
        listed = _listed(casting.features)
        return ShardError(
            "no feature holds an image" if feature is None else f"no feature {feature!r}",
            path=path,
            found=f"the features {listed}" if listed else "no tf.train.Example",
            hint="--feature names the one that holds pixels" if listed else None,
        )


def _listed(names: Iterable[str]) -> str:
    shown = [printable(name) for name in names]
    return ", ".join(shown[:_FEATURES_NAMED]) + (", ..." if len(shown) > _FEATURES_NAMED else "")


def _check_out(out: Path, shards: Sequence[Path], overwrite: bool) -> str:
    """Return the format of the sheet."""
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
