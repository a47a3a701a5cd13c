"""``tfrtool inspect dataset``."""

import json
from dataclasses import dataclass
from typing import Any, Literal

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import INPUT, command
from tfrtool.declare import Options, option
from tfrtool.errors import UsageError
from tfrtool.inspection.inspect_options import DatasetOptions


@dataclass(frozen=True, kw_only=True)
class _InspectDatasetOptions(Options):
    emit: Literal["page", "croissant"] = option(
        "page",
        "Print a readable page, or a Croissant description of the dataset (MLCommons) as JSON-LD.",
    )


@command(
    "tfrtool inspect dataset shards/pets",
    "tfrtool inspect dataset ~/tensorflow_datasets/mnist --json",
    "tfrtool inspect dataset pipeline/examples --label-feature species",
    "tfrtool inspect dataset shards/pets --emit croissant > croissant.json",
    options=(DatasetOptions, _InspectDatasetOptions),
)
@click.argument("dataset", type=INPUT)
def inspect_dataset_command(dataset: str, as_json: bool, **words: Any) -> Outcome:
    """Summarize a dataset: splits, labels, balance and shuffling.

    DATASET is a directory of shards, with or without TFDS metadata. If it has one
    folder per version, the newest is used. One folder per split, as TFX writes them, also works.

    Shows the splits and shards, the counts compared with the metadata, the balance of the labels,
    whether the order is random, and the shuffle buffer that training needs.

    Exit code 3 means damaged records, missing or extra shards, or counts that don't match the
    metadata.
    """
    form = words.pop("emit")
    if as_json and form == "croissant":
        raise UsageError(
            "--json and --emit croissant cannot be used together",
            hint="use --emit croissant alone to print JSON",
        )
    from tfrtool.cli.render.dataset_text import dataset_page, fault_text
    from tfrtool.inspection.dataset.croissant import croissant
    from tfrtool.inspection.dataset.dataset_summary import inspect_dataset
    from tfrtool.storage.json_values import to_json_values

    with Bars() as bars:
        if form == "page":
            summary = inspect_dataset(dataset, on_progress=bars, **words)
        else:
            summary, content, complete = croissant(dataset, on_progress=bars, **words)
    if form == "page":
        emit(to_json_values(summary) if as_json else dataset_page(summary))
        return Outcome.DAMAGE if summary.faults else Outcome.FINE
    for fault in summary.faults:
        warn(": ".join(fault_text(fault)))
    emit(json.dumps(content, indent=2))
    return Outcome.FINE if complete else Outcome.DAMAGE
