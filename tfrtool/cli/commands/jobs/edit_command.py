"""``tfrtool edit``."""

from collections.abc import Iterable
from typing import Any

import click

from tfrtool.cli.job_options import IDENTITY_OPTIONS, RUN_OPTIONS, pairs_of, run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command, description_options, image_size
from tfrtool.errors import UsageError


@command(
    "tfrtool edit shards/pets small --resize 64 --drop image/filename",
    "tfrtool edit shards/pets renamed --rename label=class --add source=kaggle",
    "tfrtool edit raw typed --cast height=int64 --add weight:float32=1 --on-error skip",
    options={
        "--select A,B ...": "Keep these features alone.",
        "--drop A,B ...": "Leave these features out.",
        "--cast NAME=DTYPE ...": "Give a feature's values another type: string, int64 or float32.",
        "--rename OLD=NEW ...": "Give a feature another name; SRC's count.",
        "--add NAME=VALUE ...": "Add a feature to every record; NAME:DTYPE[:SHAPE]=VALUE says its "
        "type.",
        "--encode jpeg|png|keep": "Encode images anew; keep: those that are no good JPEGs alone.",
        "--resize N|WxH": "Scale the shorter side to N, or the image to exactly W x H.",
        **IDENTITY_OPTIONS,
        "--on-error skip|stop=stop": "Stop at a record that is damaged or can't be changed, or "
        "skip it and list it (exit code 3).",
        **RUN_OPTIONS,
    },
)
@click.argument("source", type=INPUT)
@click.argument("target", type=OUTPUT_OR_URL)
def edit_command(source: str, target: str, **words: Any) -> Outcome:
    """Change the features of all records of SRC.

    DST gets a shard for each of SRC. In this order: images are encoded anew, features are left out,
    cast, renamed, and added; names are those of SRC. What isn't named stays as it is, and a record
    that nothing changes keeps its bytes. No value is changed unsaid: what doesn't fit its type is
    an error that names the record. Exit code 3 means that records were left out.
    """
    from tfrtool.convert.edit.edit import edit

    select = words.pop("select")
    return run_job(
        edit,
        source,
        target,
        select=_names(select) if select else None,
        drop=_names(words.pop("drop")),
        rename=pairs_of(words.pop("rename"), "OLD=NEW, such as label=class"),
        cast=pairs_of(words.pop("cast"), "NAME=DTYPE, such as label=float32"),
        add=dict(map(_added, words.pop("add"))),
        resize=image_size(words.pop("resize")),
        **words,
    )


def _names(lists: Iterable[str]) -> list[str]:
    return [name for text in lists for name in text.split(",")]


def _added(notation: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``, whose type the value shows, or ``NAME:DTYPE[:SHAPE]=VALUE``."""
    from tfrtool.examples.example import Feature
    from tfrtool.examples.number_columns import relative_change
    from tfrtool.examples.schema import FeatureSpec

    name, equals, text = notation.partition("=")
    if not equals:
        expected = "NAME=VALUE, such as source=kaggle or weight:float32=1"
        raise UsageError(f"{notation!r} has no =", expected=expected)
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
            what = f"{notation!r} would be rounded as a float32"
            raise UsageError(what, expected=f"{name}:int64=, {name}:string= or {name}:float32=")
        return name, value
    return name, text
