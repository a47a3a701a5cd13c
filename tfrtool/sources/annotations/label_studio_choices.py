"""Label Studio's exports of choices: a class, or several, for each image."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tfrtool.errors import SourceError, os_errors_as
from tfrtool.sources.annotations.label_studio_tasks import image_names, is_export, read_tasks
from tfrtool.sources.folders.annotated import write_command
from tfrtool.sources.folders.listing import list_directory
from tfrtool.sources.formats.unpacked import open_unpacked
from tfrtool.sources.items import Source
from tfrtool.sources.label_choice import SEVERAL
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import find_columns, quoted
from tfrtool.sources.tables.tables import read_table
from tfrtool.storage.remote_path import AnyPath, RemotePath

_FILE = "label-studio.jsonl"
_IMAGE = "image"
_CONTROLS = ("choice", "choices")
"""Names of controls in Label Studio's templates."""


def read_choices(
    export: AnyPath, root: AnyPath | None, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images of an export with their choices; None for any other file.

    Images are looked for below the folder of the export, or below ``root``.

    Raises:
        SourceError: the export has regions, or no usable choices.
    """
    with os_errors_as(SourceError, export), open_unpacked(export) as file:
        if not is_export(file, export):
            return None
    names, has_several = _controls(export)
    label = _label_control(export, names, options)
    options = replace(options, annotations=(), path_column=_IMAGE, label_column=label)
    if has_several:
        options = replace(options, multi_label=options.multi_label or SEVERAL)
    rows = _write_rows(export, root, names, scratch / _FILE)
    from tfrtool.sources.label_choice import with_labels

    source = read_table(export, root, scratch, options, {"": rows})
    return with_labels(source, options, str(export), scratch)


def has_choices_alone(export: AnyPath) -> bool:
    """Return whether a file is an export that has choices and no regions."""
    if not export.is_file():
        return False
    with os_errors_as(SourceError, export), open_unpacked(export) as file:
        if not is_export(file, export):
            return False
        file.seek(0)
        found = False
        for task in read_tasks(file, export):
            if task.regions:
                return False
            found |= bool(task.choices)
        return found


def _controls(export: AnyPath) -> tuple[Mapping[str, int], bool]:
    """Return how many images each control has choices for, and whether any has several."""
    names, has_several = Counter[str](), False
    with os_errors_as(SourceError, export), open_unpacked(export) as file:
        for task in read_tasks(file, export):
            if task.regions:
                hint = f"run {write_command('IMAGES', f'labelstudio:{export}')} to write the boxes"
                what = f"{task.where} has boxes or outlines"
                raise SourceError(what, path=export, hint=hint)
            names.update(task.choices.keys())
            has_several |= any(len(choices) > 1 for choices in task.choices.values())
    return names, has_several


def _label_control(export: AnyPath, names: Mapping[str, int], options: SourceOptions) -> str:
    """Return the control whose choices are the labels."""
    usual = (options.label_column, *_CONTROLS, find_columns([*names]).label)
    found = next((name for name in usual if name in names), None)
    if options.label_column is not None and found != options.label_column:
        return options.label_column  # which the reader of tables refuses
    if found is None and len(names) == 1:
        (found,) = names
    if found is None:
        what = "several controls have choices" if names else "no choices"
        hint = "use --label-column NAME to choose the control of the labels" if names else None
        raise SourceError(what, path=export, found=quoted([*names]) or None, hint=hint)
    return found


def _write_rows(
    export: AnyPath, root: AnyPath | None, names: Mapping[str, int], target: Path
) -> Path:
    """Write the choices as JSON Lines, each in the line of its row or task."""
    files = set[str]()
    for folder in (export.parent, root):
        if folder is not None and not isinstance(folder, RemotePath) and folder.is_dir():
            listed = list_directory(str(folder)).entries
            files |= {entry.key.rpartition("/")[2] for entry in listed}
    line = 1
    with (
        os_errors_as(SourceError, export),
        open_unpacked(export) as file,
        target.open("w", encoding="utf-8") as rows,
    ):
        for task in read_tasks(file, export):
            path, before_upload = image_names(task.image)
            if path.rpartition("/")[2] not in files and before_upload.rpartition("/")[2] in files:
                path = before_upload
            rows.write("\n" * (task.number - line))
            line = task.number
            choices = {name: SEVERAL.join(task.choices.get(name, ())) for name in names}
            rows.write(json.dumps({_IMAGE: path, **choices}))
    return target
