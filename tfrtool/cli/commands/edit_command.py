"""``tfrtool edit``."""

from collections.abc import Iterable
from typing import Any

import click

from tfrtool.cli.job_options import OUTPUT_OPTIONS, parse_pairs, run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import (
    INPUT,
    OUTPUT_OR_URL,
    WORKERS,
    command,
    description_options,
    image_size,
)
from tfrtool.errors import UsageError


@command(
    "tfrtool edit shards/pets small --resize 64 --drop image/filename",
    "tfrtool edit shards/pets renamed --rename label=class --add source=kaggle",
    "tfrtool edit raw typed --cast height=int64 --add weight:float32=1 --on-error skip",
    options={
        "Labels and features": {
            "--select A,B ...": "Keep only these features.",
            "--drop A,B ...": "Drop these features.",
            "--cast NAME=DTYPE ...": "Convert a feature to string, int64 or float32. Repeatable.",
            "--rename OLD=NEW ...": "Rename a feature. Repeatable.",
            "--add NAME=VALUE ...": "Add a feature with this value to every record. "
            "NAME:DTYPE[:SHAPE]=VALUE sets its type. Repeatable.",
        },
        "Images": {
            "--encode jpeg|png|keep": "Encode every image as JPEG or PNG; keep converts only "
            "images that aren't valid JPEGs.",
            "--resize N|WxH": "Scale the shorter side to N pixels, or the image to exactly W x H.",
        },
        "Output": OUTPUT_OPTIONS,
        "Execution": {
            "--on-error stop|skip=stop": "Stop at the first record that is damaged or can't be "
            "changed, or skip such records and list them (exit code 3).",
            **WORKERS,
        },
    },
)
@click.argument("source", type=INPUT)
@click.argument("target", type=OUTPUT_OR_URL)
def edit_command(source: str, target: str, **words: Any) -> Outcome:
    """Change the features of every record.

    SOURCE is a dataset directory, a shard or a quoted glob. TARGET gets one shard for each shard
    of SOURCE. Changes are made in this order: encode and resize images, select or drop features,
    cast, rename, add. All names refer to SOURCE.

    A value that doesn't fit its new type is an error; values never change silently. Exit code 3
    means that records were skipped.
    """
    from tfrtool.convert.edit import edit

    select = words.pop("select")
    return run_job(
        edit,
        source,
        target,
        select=_names(select) if select else None,
        drop=_names(words.pop("drop")),
        rename=parse_pairs("--rename", words.pop("rename"), "OLD=NEW, such as label=class"),
        cast=parse_pairs("--cast", words.pop("cast"), "NAME=DTYPE, such as label=float32"),
        add=dict(map(_added, words.pop("add"))),
        resize=image_size(words.pop("resize")),
        **words,
    )


def _names(lists: Iterable[str]) -> list[str]:
    return [name for text in lists for name in text.split(",")]


def _added(notation: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``, typed by its value, or ``NAME:DTYPE[:SHAPE]=VALUE``."""
    from tfrtool.examples.dtypes import relative_change
    from tfrtool.examples.example import Feature
    from tfrtool.examples.schema import FeatureSpec

    name, equals, text = notation.partition("=")
    if not equals:
        expected = "NAME=VALUE, such as source=kaggle or weight:float32=1"
        raise UsageError(f"invalid --add {notation!r}", expected=expected)
    if ":" in name:
        with description_options():
            spec = FeatureSpec.parse(notation)
        return spec.name, Feature(dtype=spec.dtype, values=spec.default or ())
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if isinstance(value, float) and value.is_integer() and relative_change(value):
            what = f"--add {notation!r} would be rounded to float32"
            raise UsageError(what, expected=f"{name}:int64=, {name}:string= or {name}:float32=")
        return name, value
    return name, text
