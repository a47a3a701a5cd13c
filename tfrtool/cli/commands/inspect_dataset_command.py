"""``tfrtool inspect dataset``."""

import json
from typing import Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import ENGINE, INPUT, WORKERS, command
from tfrtool.errors import UsageError


@command(
    "tfrtool inspect dataset shards/pets",
    "tfrtool inspect dataset ~/tensorflow_datasets/mnist --json",
    "tfrtool inspect dataset pipeline/examples --label-feature species",
    "tfrtool inspect dataset shards/pets --emit croissant > croissant.json",
    options={
        "--label-feature|--label NAME": "The feature that is the label, int64 or string. The "
        "default is the one that the metadata says, or that has a name in common use.",
        "--emit page|croissant=page": "A page for people; or MLCommons' description of a dataset, "
        "Croissant, as JSON-LD.",
        **WORKERS,
        **ENGINE,
    },
)
@click.argument("dataset", type=INPUT)
def inspect_dataset_command(dataset: str, as_json: bool, **words: Any) -> Outcome:
    """Show what a dataset holds, and how well it is shuffled.

    DATASET: a directory with shards, with TFDS metadata or without; versions of a dataset in
    folders, of which the newest is taken; or a folder for each split, as TFX writes them. Shows
    splits, shards, counts against the metadata, labels and their balance, whether the order is
    random, and the shuffle buffer that training needs. Exit code 3 means damage, missing or extra
    shards, or counts that differ.
    """
    form = words.pop("emit")
    if as_json and form == "croissant":
        raise UsageError(
            "--json and --emit cannot be used together", hint="--emit croissant is JSON"
        )
    from tfrtool.cli.render.dataset_text import dataset_page, fault_text
    from tfrtool.inspection.dataset.croissant import croissant
    from tfrtool.inspection.dataset.dataset_summary import inspect_dataset
    from tfrtool.storage.plain import plain

    with Bars() as bars:
        if form == "page":
            summary = inspect_dataset(dataset, on_progress=bars, **words)
        else:
            summary, content, whole = croissant(dataset, on_progress=bars, **words)
    if form == "page":
        emit(plain(summary) if as_json else dataset_page(summary))
        return Outcome.DAMAGE if summary.faults else Outcome.FINE
    for fault in summary.faults:
        warn(": ".join(fault_text(fault)))
    emit(json.dumps(content, indent=2))
    return Outcome.FINE if whole else Outcome.DAMAGE
