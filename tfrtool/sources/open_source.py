"""Open SOURCE: its kind is detected from its form and its content."""

import os
import posixpath
import stat
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tfrtool.errors import SourceError, UsageError, os_errors_as, os_reason
from tfrtool.records.compression import describe_content, is_text, starts_record
from tfrtool.records.shard_sets import SPLIT_NAMES, is_shard_name
from tfrtool.sources.archives import is_tar, list_tar, list_zip
from tfrtool.sources.folders.annotated import (
    CLASSES_CSV,
    METADATA_TABLES,
    names_pixels,
    shards_refusal,
)
from tfrtool.sources.folders.class_layout import arrange
from tfrtool.sources.folders.listing import (
    Listing,
    is_clutter,
    is_image_name,
    is_pattern,
    list_directory,
    list_matches,
)
from tfrtool.sources.folders.name_pattern import LabelFrom, NamePattern, with_name_features
from tfrtool.sources.folders.store_listing import list_store
from tfrtool.sources.formats.arrow_magic import MAGICS
from tfrtool.sources.items import Source, Starting
from tfrtool.sources.label_choice import with_labels
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_path, option_name
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath, is_url, remote_path

_HEAD = 512
"""Bytes that show what a file is: the length of a tar header."""

_TFDS = "tfds:"
_COLUMNAR = (b"PAR1", *MAGICS)
TABLE_NAMES = (".csv", ".tsv", ".jsonl", ".ndjson")
"""Names of tables, in lower case; other texts are looked at as tables too."""

_MOST_AROUND, _MOST_ENTRIES = 8, 100
"""Folders around everything, and the entries of one."""


_EXPECTED = (
    "a directory, a .zip or .tar(.gz) archive, a table (CSV, JSON, Parquet or Arrow), "
    "arrays (.npz, idx, CIFAR's pickles or pixels in CSV), a quoted pattern, or tfds:NAME"
)


_DEFAULT = SourceOptions()


def open_source(
    argument: str,
    label_from: LabelFrom | NamePattern,
    scratch: Path,
    root: AnyPath | None = None,
    starting: Starting = nullcontext,
    options: SourceOptions = _DEFAULT,
) -> Source:
    """List the items of a source; the content of a file decides its kind, not its name.

    ``scratch`` is a folder for what must be kept while items are read; the caller removes it.
    ``starting`` gives the context in which TensorFlow is loaded where TFDS prepares a dataset.
    What can't be used is a SourceError; a name that TFDS can't have, or a root without a table, a
    UsageError.
    """
    if options.annotations:
        source = _annotated(argument, scratch, root, options)
    else:
        source = _open(argument, label_from, scratch, root, starting, options)
        if options != _DEFAULT:
            source = with_labels(source, options, argument, scratch)
    if options.group_by is None or source.grouped:
        return source
    from tfrtool.sources.grouping import group_by_name

    return group_by_name(source, options.group_by, scratch)


def _open(
    argument: str,
    label_from: LabelFrom | NamePattern,
    scratch: Path,
    root: AnyPath | None,
    starting: Starting,
    options: SourceOptions,
) -> Source:
    tfds, depth = argument.startswith(_TFDS), options.label_depth
    tables = {} if tfds or is_url(argument) else metadata_tables(Path(argument))
    if is_url(argument):
        argument = str(remote_path(argument))  # without what is secret in it
    columns = options.path_column or options.label_columns
    is_tree = bool(options.split_labels) or depth is not None
    if not (tfds or root or is_tree or columns) and label_from is LabelFrom.FOLDER:
        from tfrtool.sources.packed.open_packed import read_packed

        if (packed := read_packed(argument, scratch, options)) is not None:
            return packed
    listing = None if tfds else _list(argument, scratch)
    if depth is not None and (listing is None or label_from is not LabelFrom.FOLDER):
        raise UsageError("--label-depth requires class folders", path=argument)
    if listing is None and label_from is not LabelFrom.FOLDER:
        name = "filename" if isinstance(label_from, LabelFrom) else "REGEX"
        what = f"--label-from {name} doesn't apply: the source has its own labels"
        raise UsageError(what, path=argument)
    if options.split_labels and listing is None:
        raise UsageError("--split-labels requires folders of images", path=argument)
    if listing is None and not tfds:
        from tfrtool.sources.annotations.label_studio_choices import read_choices
        from tfrtool.sources.tables.tables import read_table

        table = as_path(argument)
        choices = None if options.path_column else read_choices(table, root, scratch, options)
        return choices or read_table(table, root, scratch, options)
    if tables and label_from is LabelFrom.FOLDER and listing is not None and not is_tree:
        return _read_with_tables(listing, tables, argument, scratch, root, options)
    if options.writes_columns and not isinstance(label_from, NamePattern):
        name = "--column" if options.columns else "--all-columns"
        what = f"{name} requires a table, or --label-from with named groups"
        raise UsageError(what, path=argument)
    for name in ("path_column", "label_column", "label_columns"):
        if getattr(options, name):
            raise UsageError(f"{option_name(name)} requires a table", path=argument)
    if root is not None:
        raise UsageError("--root requires a table", path=argument)
    if listing is None:
        from tfrtool.sources.tfds import read_tfds

        return read_tfds(argument.removeprefix(_TFDS), starting, scratch)
    source = arrange(listing, label_from, argument, scratch, depth, options.split_labels)
    if isinstance(label_from, NamePattern):
        return with_name_features(source, label_from, options, argument, scratch)
    return source


def metadata_tables(folder: Path) -> dict[str, Path]:
    """Return the tables of a folder of images for Hugging Face's datasets, or of Roboflow.

    It is one, by the name "", or one in each folder of a split, by its name. Folders around
    everything are part of these names.
    """
    around = ""
    for _ in range(_MOST_AROUND):
        if (table := _metadata_table(folder / around)) is not None:
            return {around: table}
        found: dict[str, Path] = {}
        for split in SPLIT_NAMES:  # a folder may have a million entries, which are not asked for
            for spelled in (split, split.capitalize()):
                table = _metadata_table(folder / around / spelled)
                if table is not None and split not in map(str.lower, found):
                    found[spelled] = table
        if found:
            return {posixpath.join(around, name): table for name, table in found.items()}
        if (inner := _only_folder(folder / around)) is None:
            break
        around = posixpath.join(around, inner)
    return {}


def _only_folder(folder: Path) -> str | None:
    """Return the only folder in a folder that has no images; None without one."""
    inner = list[str]()
    with suppress(OSError, ValueError), os.scandir(str(folder)) as entries:
        for entry in islice((one for one in entries if not is_clutter(one.name)), _MOST_ENTRIES):
            if is_image_name(entry.name) or (inner and entry.is_dir()):
                return None
            inner += [entry.name] * (entry.is_dir() and not entry.is_symlink())
    return inner[0] if inner else None


def _metadata_table(folder: Path) -> Path | None:
    """Return the table in a folder; None for none, or for Roboflow's values of masks."""
    for table in (folder / name for name in METADATA_TABLES):
        if table.is_file() and not (table.name == CLASSES_CSV and names_pixels(table)):
            return table
    return None


def _read_with_tables(
    listing: Listing,
    tables: Mapping[str, Path],
    argument: str,
    scratch: Path,
    root: AnyPath | None,
    options: SourceOptions,
) -> Source:
    """Read a folder through the tables in it, unless its class folders say what images are."""
    from tfrtool.sources.tables.tables import read_table

    classes = None
    chosen = (options.path_column, options.label_column, options.label_columns)
    if not (options.writes_columns or any(chosen)):
        with suppress(SourceError):
            classes = arrange(listing, LabelFrom.FOLDER, argument, scratch)
    if classes is not None and len(classes.labels) > 1:
        return classes
    first = next(iter(tables.values())).name
    listed = list_directory(os.path.abspath(argument))  # noqa: PTH100 - links stay
    source = read_table(Path(argument) / first, root, scratch, options, tables, listed)
    notice = f"paths and labels of images are read from {first}"
    return replace(source, notices=(notice, *source.notices))


def _annotated(
    argument: str, scratch: Path, root: AnyPath | None, options: SourceOptions
) -> Source:
    from tfrtool.sources.annotations.annotation_matcher import match_annotations
    from tfrtool.sources.annotations.coco_labels import read_coco_labels
    from tfrtool.sources.annotations.readers import open_annotations

    if argument.startswith(_TFDS) or (listing := _list(argument, scratch)) is None:
        what = "--annotations requires a folder or an archive of images"
        raise UsageError(what, path=argument)
    images = Path(argument) if Path(argument).is_dir() else None
    if images is not None and (source := _annotated_choices(images, scratch, options)):
        return source
    if images is not None and (source := read_coco_labels(images, scratch, options)):
        return source
    reader = open_annotations(options, images, scratch, root)
    return match_annotations(listing, reader, options, argument, scratch)


def _annotated_choices(images: Path, scratch: Path, options: SourceOptions) -> Source | None:
    """Return the images of the only export of Label Studio if it has choices and no regions."""
    from tfrtool.sources.annotations.label_studio_choices import has_choices_alone, read_choices

    kind, _, path = "".join((options.annotations or ())[:1]).partition(":")
    if kind != "labelstudio" or len(options.annotations or ()) != 1:
        return None
    if not has_choices_alone(export := as_path(path)):
        return None
    return read_choices(export, images, scratch, options)


def _list(argument: str, scratch: Path) -> Listing | None:
    """List a tree of files; None for what may be a table."""
    if is_url(argument):
        found = list_store(argument)
        return _list_file(argument, argument, scratch) if found is None else found
    path = os.path.abspath(argument)  # noqa: PTH100 - links stay
    try:
        mode = os.stat(argument).st_mode  # noqa: PTH116
    except (OSError, ValueError) as error:
        if is_pattern(argument):
            return list_matches(argument)
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        raise SourceError(f"can't be read: {reason}", path=argument) from error
    if stat.S_ISDIR(mode):
        return list_directory(path)
    if not stat.S_ISREG(mode):
        raise SourceError("not a regular file or a directory", path=argument, expected=_EXPECTED)
    return _list_file(argument, path, scratch)


def _list_file(argument: str, path: str, scratch: Path) -> Listing | None:
    with os_errors_as(SourceError, argument):
        if is_tar(path):
            return list_tar(path, scratch)
        with open_regular(path) as file:
            head = file.read(_HEAD)
            is_zip = head.startswith(b"PK\x03\x04") or zipfile.is_zipfile(file)
    if is_zip:
        return list_zip(path, scratch)
    named = path.lower().removesuffix(".gz").endswith(TABLE_NAMES)
    if named or (head.strip() and is_text(head)) or head.startswith(_COLUMNAR):
        return None
    name = as_path(argument).name
    if starts_record(head) or is_shard_name(name):
        raise shards_refusal(name, argument)
    found = describe_content(head)
    raise SourceError("not a source of images", path=argument, expected=_EXPECTED, found=found)
