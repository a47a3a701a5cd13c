"""``tfrtool inspect dataset``."""

import json

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import INPUT, debug_option, json_option, options, workers_option
from tfrtool.errors import UsageError


@click.command(
    name="dataset",
    epilog="\b\nExamples:\n"
    "  tfrtool inspect dataset shards/pets\n"
    "  tfrtool inspect dataset ~/tensorflow_datasets/mnist --json\n"
    "  tfrtool inspect dataset pipeline/examples --label species\n"
    "  tfrtool inspect dataset shards/pets --emit croissant > croissant.json",
)
@click.argument("dataset", type=INPUT)
@options(
    {
        "--label NAME": "The feature that is the label, int64 or string; by default the one that "
        "the metadata says, or that has a name in common use, or the only one of its sort.",
    }
)
@click.option(
    "--emit",
    "form",
    type=click.Choice(["page", "croissant"]),
    default="page",
    show_default=True,
    help="A page for people; or MLCommons' description of a dataset, Croissant, as JSON-LD.",
)
@workers_option
@json_option
@debug_option
def inspect_dataset_command(
    dataset: str,
    label: str | None,
    form: str,
    workers: int | None,
    as_json: bool,
) -> Outcome:
    """Show what a dataset holds, and how well it is shuffled.

    DATASET: a directory with shards, with TFDS metadata or without; versions of a dataset in
    folders, of which the newest is taken; or a folder for each split, as TFX writes them. Shows
    splits, shards, counts against the metadata, labels and their balance, whether the order is
    random, and the shuffle buffer that training needs. Exit code 3 means damage, missing or extra
    shards, or counts that differ.
    """
    if as_json and form == "croissant":
        raise UsageError("--json and --emit exclude each other", hint="--emit croissant is JSON")
    from tfrtool.cli.render.dataset_text import dataset_page, fault_text
    from tfrtool.inspection.dataset.croissant import croissant
    from tfrtool.inspection.dataset.dataset_summary import inspect_dataset
    from tfrtool.storage.plain import plain

    with Bars() as bars:
        if form == "page":
            summary = inspect_dataset(dataset, label=label, workers=workers, on_progress=bars)
        else:
            summary, content, whole = croissant(
                dataset, label=label, workers=workers, on_progress=bars
            )
    if form == "page":
        emit(plain(summary) if as_json else dataset_page(summary))
        return Outcome.DAMAGE if summary.faults else Outcome.FINE
    for fault in summary.faults:
        warn(": ".join(fault_text(fault)))
    emit(json.dumps(content, indent=2))
    return Outcome.FINE if whole else Outcome.DAMAGE
