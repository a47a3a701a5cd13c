"""Contact sheets of shards: the first images of each, with labels, and with what is broken."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from tfrtool.declare import takes
from tfrtool.errors import (
    ShardError,
    UsageError,
    WriteError,
    human_count,
    os_errors_as,
    printable,
    some_of,
)
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.images.letters import undrawn
from tfrtool.images.pixels import Picture
from tfrtool.images.sheet import SUFFIXES, SheetLayout, Tile, draw_sheet, save_sheet
from tfrtool.inspection.inspect_options import SheetOptions
from tfrtool.inspection.pictures.array_images import declared_root, is_array_image
from tfrtool.inspection.pictures.objects import marks_of
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles, pictures_of
from tfrtool.records.framing import Fault, LocatedFault
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import find_shards
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.atomic_files import delete_leftovers, new_file
from tfrtool.storage.json_values import Shown
from tfrtool.storage.progress import Progress
from tfrtool.storage.remote_path import AnyPath, RemotePath, is_same_file

_OF_FILES = {"empty", "not-tfrecord", "decompression", "trailing-bytes"}
"""Kinds of faults without a tile."""

_FEATURES_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenImage:
    """A record that is marked on the sheet, since its image can't be shown."""

    path: AnyPath
    record: int | None  # None where it can't be known
    offset: int  # where its header starts in the uncompressed stream, in bytes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetShard:
    """How many tiles a shard has, and the feature that was drawn; None where there is none."""

    path: AnyPath
    images: int
    feature: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SheetReport(Shown):
    """Contents of a contact sheet.

    Attributes:
        out: the image file.
        layout: arrangement of the tiles.
        broken: images that can't be shown, whose tiles have a red cross.
        guessed: number of images whose size was guessed from their number of bytes.
        shards: for each shard, the number of tiles and the feature that was drawn.
        other_features: other features that contain encoded images.
        without: shards in which no feature contains an image.
        faults: damage to the files as a whole, which has no tile.
        objects: number of objects drawn, or None if they were not requested.
        has_boxes: whether the records have features for boxes.
        undrawn: characters missing in all fonts of the system, in order. They are drawn as escapes.
    """

    out: AnyPath
    layout: SheetLayout
    broken: tuple[BrokenImage, ...]
    guessed: int
    shards: tuple[SheetShard, ...]
    other_features: tuple[str, ...]
    without: tuple[AnyPath, ...]
    faults: tuple[LocatedFault, ...]
    objects: int | None
    has_boxes: bool
    undrawn: str


@takes(SheetOptions)
def contact_sheet(shards: Paths, out: str | os.PathLike[str], options: SheetOptions) -> SheetReport:
    """Draw the first images of each shard on one contact sheet and save it.

    Shards are read only as far as needed, and only thumbnails are kept in memory.

    Args:
        shards: files, glob patterns and directories, one or several, in the order to show them.
        out: image file to write. Its extension determines the format.

    Raises:
        UsageError: ``out`` exists or has an unsupported extension, the sheet would be too large, or
            no record has the label.
        ShardError: a file can't be read, or no file contains an image.
        WriteError: the sheet can't be written.
    """
    # Refused before anything is read.
    SheetLayout(images=options.limit, columns=options.columns or 0, thumb=options.thumb)
    paths, out = find_shards(shards), as_path(out)
    _check_out(out, paths, options.overwrite)
    drawing = _Drawing(paths, options)
    tiles, roles_of = drawing.tiles, drawing.roles_of
    if not tiles:
        raise _no_images(*next(iter(roles_of.items())), options.feature)
    features = dict.fromkeys(
        name for one in roles_of.values() for name in one.features if name != one.image
    )
    if options.label is not None and options.label not in features:
        raise UsageError(
            f"no feature {options.label!r} to label images with",
            path=paths[0],
            expected=f"one of {_listed(features)}",
        )
    layout = SheetLayout(images=len(tiles), columns=options.columns or 0, thumb=options.thumb)
    title = drawing.title
    sheet = draw_sheet(tiles, layout, title)
    delete_leftovers(out)
    failing = os_errors_as(WriteError, out, "can't be written")
    with failing, new_file(out, replace=options.overwrite) as file:
        save_sheet(sheet, file, out.suffix)
    texts = [text for one in tiles for text in (one.label, *(mark.name for mark in one.marks))]
    return SheetReport(
        out=out,
        layout=layout,
        broken=tuple(drawing.broken),
        guessed=sum(tile.picture.guessed for tile in tiles),
        shards=tuple(drawing.found),
        other_features=drawing.other_features(),
        without=tuple(
            path
            for path, roles in roles_of.items()
            if roles.image is None and (roles.features or not roles.faults)
        ),
        faults=tuple(drawing.faults),
        objects=sum(len(tile.marks) for tile in tiles) if options.boxes else None,
        has_boxes=any(roles.has_boxes for roles in roles_of.values()),
        undrawn=undrawn([title, *texts]),
    )


class _Drawing:
    """The pictures of a sheet, and what was found in the shards while they were drawn.

    Attributes:
        tiles: the pictures, in the order of the records.
        broken: the images that can't be decoded.
        faults: damage of the shards.
        found: how many pictures each shard has, and which feature holds them.
        roles_of: the features of the shards that have a share of the sheet.
    """

    def __init__(self, paths: Sequence[AnyPath], options: SheetOptions) -> None:
        """Draw the first images of each shard."""
        self._paths, self._options = paths, options
        self.tiles: list[Tile] = []
        self.broken: list[BrokenImage] = []
        self.faults: list[LocatedFault] = []
        self.found: list[SheetShard] = []
        self.roles_of: dict[AnyPath, ImageRoles] = {}
        for number, path in enumerate(paths):
            before = len(self.tiles)
            feature = self._draw(number, path)
            count = len(self.tiles) - before
            self.found.append(SheetShard(path=path, images=count, feature=feature))

    def _draw(self, number: int, path: AnyPath) -> str | None:
        """Draw the images of a shard; return the feature that holds them."""
        # An even share of the limit, and what the shards before this one could not fill.
        options, tiles = self._options, self.tiles
        share = (number + 1) * options.limit // len(self._paths) - len(tiles)
        if not share:
            return None
        roles = self.roles_of[path] = _roles_of(path, options)
        mark = f"{number}:" if len(self._paths) > 1 else "#"
        drawn = _tiles(path, roles, options.thumb, mark, self.faults, options.boxes)
        for tile, why in islice(drawn, share):
            tiles.append(tile)
            self.broken += [] if why is None else [why]
            done, total = len(tiles), options.limit
            options.on_progress(Progress(what="drawing", done=done, total=total, unit="images"))
        return roles.image

    @property
    def title(self) -> str:
        """The title of the sheet."""
        name = self._paths[0].name if len(self._paths) == 1 else f"{len(self._paths):,} shards"
        marked = f", {len(self.broken):,} broken" if self.broken else ""
        return f"{name}: {human_count(len(self.tiles), 'image')}{marked}"

    def other_features(self) -> tuple[str, ...]:
        """Return the features that hold images, but weren't drawn."""
        used = {shard.feature for shard in self.found}
        others = dict.fromkeys(name for one in self.roles_of.values() for name in one.others)
        return tuple(name for name in others if name not in used)


def _no_images(path: AnyPath, roles: ImageRoles, name: str | None) -> ShardError:
    """Return the error that a shard has no images, or not in the feature of this name."""
    what = "no feature holds an image" if name is None else f"no feature {name!r}"
    names, hint = None if roles.faults else "records that are not a tf.train.Example", None
    if roles.features:
        names = f"features {_listed(roles.features)}"
        hint = "use --feature to name the one that holds pixels"
    elif roles.faults:
        what = f"no image can be read: {roles.faults[0].message}"
    return ShardError(what, path=path, found=names, hint=hint)


def _roles_of(path: AnyPath, options: SheetOptions) -> ImageRoles:
    """Return the features of a shard; a single one with a type is the image."""
    root, image = declared_root(path, options.types), options.feature
    if image is None and options.types:
        typed = [name for name in options.types if is_array_image(root, name)]
        image = typed[0] if len(typed) == 1 else None
    return image_roles(path, image, options.label, root)


def _tiles(
    path: AnyPath, roles: ImageRoles, thumb: int, mark: str, faults: list[LocatedFault], boxes: bool
) -> Iterator[tuple[Tile, BrokenImage | None]]:
    """Draw a shard's images; damage that is in no record goes to the faults."""
    if roles.image is None:
        faults += [LocatedFault(path=path, fault=fault) for fault in roles.faults]
        return
    for item in read_shard(path):
        if not isinstance(item, Fault):
            index: int | None = item.index
            found = pictures_of(item.payload, roles, thumb)
        elif item.kind.value in _OF_FILES:
            faults.append(LocatedFault(path=path, fault=item))
            continue
        else:
            index = item.record
            problem = f"{item.kind.value}: {item.message}"
            found = iter([("damaged record", "", Picture(problem=problem))])
        for order, (label, list_index, picture) in enumerate(found):
            number = f"{mark}{'?' if index is None else index}{list_index}"
            why = None
            if (reason := picture.problem) is not None:
                reason = f"feature {roles.image!r}{list_index}: {reason}" if list_index else reason
                why = BrokenImage(path=path, record=index, offset=item.offset, reason=reason)
            marks = []
            if boxes and not order and picture.image and not isinstance(item, Fault):
                features = decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE).features
                marks = marks_of(features, roles.object_names, picture, thumb)
            yield Tile(picture, label, number, marks), why


def _listed(names: Iterable[str]) -> str:
    return some_of(list(map(printable, names)), _FEATURES_NAMED)


def _check_out(out: AnyPath, shards: Sequence[AnyPath], overwrite: bool) -> None:
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(
            "unsupported image format",
            path=out,
            expected=", ".join(SUFFIXES),
            found=repr(out.suffix),
        )
    with os_errors_as(WriteError, out, "can't be written"):
        if not isinstance(out, RemotePath) and not out.parent.is_dir():
            raise UsageError("no such directory", path=out.parent)
        if out.exists():
            if any(is_same_file(out, path) for path in shards):
                raise UsageError("is one of the shards to read", path=out)
            if not overwrite:
                raise UsageError("already exists", path=out, hint="use --overwrite to replace it")
