"""``tfrtool inspect schema``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tfrtool.cli.outcome import Outcome
from tfrtool.cli.output import emit, emit_json, emit_page, human_count, warn
from tfrtool.cli.parameters import INPUT, sources_of
from tfrtool.cli.shared_options import debug_option, json_option
from tfrtool.errors import ShardError, UsageError

if TYPE_CHECKING:
    from tfrtool.inspection.schema.shard_schema import InferredSchema, SchemaOptions

__all__ = ["inspect_schema_command"]

_TABLE = "table"


@click.command(
    name="schema",
    epilog="\b\nExamples:\n"
    "  tfrtool inspect schema 'data/train*.tfrecord*'\n"
    "  tfrtool inspect schema train.tfrecord --emit python >> input.py\n"
    "  tfrtool inspect schema train.tfrecord --emit json > description.json",
)
@click.argument("shards", nargs=-1, required=True, type=INPUT)
@click.option(
    "--emit",
    "form",
    type=click.Choice([_TABLE, "python", "json", "tfds"]),
    default=_TABLE,
    show_default=True,
    help="A table for people; a feature_description for tf.io as Python source; one that "
    "--description takes; or the features.json that TFDS reads.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Look at N records only, the first of each shard in equal shares.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes at most; the cores."
)
@json_option
@debug_option
def inspect_schema_command(
    shards: tuple[str, ...], form: str, sample: int | None, workers: int | None, as_json: bool
) -> Outcome:
    """Infer one schema from all records of TFRecord files.

    Presence, types, lengths, ranges, distinct values and what bytes hold, over all shards
    together. SHARDS: files, quoted globs and directories; or -, a shard on standard input. Exit
    code 3 means that something is not in it: damaged records, shards of another kind, or a feature
    that TFDS has no words for.
    """
    if as_json and form != _TABLE:
        raise UsageError("--json and --emit exclude each other", hint="--emit json is a schema")
    from tfrtool.cli.render.schema_text import loss_text, schema_page
    from tfrtool.engines.processes import cores
    from tfrtool.inspection.schema.shard_schema import SchemaOptions
    from tfrtool.inspection.summary.summary_json import schema_json

    options = SchemaOptions(sample=sample, workers=workers or cores())
    inferred = _infer(shards, options)
    for loss in inferred.losses:
        warn(loss_text(loss))
    complete = not inferred.losses and not inferred.left_out
    if as_json:
        emit_json(schema_json(inferred))
    elif form == _TABLE:
        emit_page(schema_page(inferred))
    else:
        complete &= _emit_source(inferred, form)
    return Outcome.FINE if complete else Outcome.DAMAGE


def _infer(shards: tuple[str, ...], options: SchemaOptions) -> InferredSchema:
    """Infer the schema, with a progress bar on a terminal."""
    from tfrtool.inspection.schema.shard_schema import infer_schema

    paths = sources_of(shards)
    from tfrtool.cli.progress import Bars

    with Bars("shard") as bars:
        return infer_schema(paths, options, lambda done, total: bars.show("reading", done, total))


def _emit_source(inferred: InferredSchema, form: str) -> bool:
    """Print the schema for a program; return whether all features are in it."""
    from tfrtool.cli.render.schema_text import left_out_text, sample_text
    from tfrtool.examples.python_source import python_source
    from tfrtool.examples.tfds_features import tfds_features

    if inferred.sampled:
        warn(sample_text(inferred))
    if inferred.left_out:
        warn(left_out_text(inferred))
    if form == "python":
        emit(python_source(inferred.features, inferred.records, notes=_notes(inferred)))
        return True
    if form == "json":
        emit(json.dumps(inferred.schema.to_json(), indent=2))
        return True
    described = tfds_features(inferred.features, inferred.records, labels=not inferred.sampled)
    for name, reason in described.left_out.items():
        warn(f"{name!r} is left out: {reason}")
    if not described.content["featuresDict"]["features"]:
        raise ShardError("TFDS can be told of none of these features")
    emit(json.dumps(described.content, indent=2))
    return not described.left_out


def _notes(inferred: InferredSchema) -> list[str]:
    """Return what a description in Python starts with: what it rests on."""
    from tfrtool.cli.render.schema_text import left_out_text, loss_text, sample_text

    records = human_count(inferred.records, "record")
    shards = human_count(inferred.shards, "shard")
    notes = [f"From {records} of {shards}, by tfrtool inspect schema."]
    if inferred.sampled:
        notes.append(f"This is {sample_text(inferred)}; others may not fit.")
    if inferred.left_out:
        notes.append(f"{left_out_text(inferred)}.".capitalize())
    notes += [loss_text(loss) for loss in inferred.losses]
    return notes
