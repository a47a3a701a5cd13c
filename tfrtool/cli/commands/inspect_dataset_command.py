"""``tfrtool inspect dataset``."""

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import INPUT, debug_option, json_option, options, workers_option


@click.command(
    name="dataset",
    epilog="\b\nExamples:\n"
    "  tfrtool inspect dataset shards/pets\n"
    "  tfrtool inspect dataset ~/tensorflow_datasets/mnist --json\n"
    "  tfrtool inspect dataset pipeline/examples --label species",
)
@click.argument("dataset", type=INPUT)
@options(
    {
        "--label NAME": "The feature that is the label, int64 or string; by default the one that "
        "the metadata says, or that has a name in common use, or the only one of its sort."
    }
)
@workers_option
@json_option
@debug_option
def inspect_dataset_command(
    dataset: str, label: str | None, workers: int | None, as_json: bool
) -> Outcome:
    """Show what a dataset holds, and how well it is shuffled.

    DATASET: a directory with shards, with TFDS metadata or without; versions of a dataset in
    folders, of which the newest is taken; or a folder for each split, as TFX writes them. Shows
    splits, shards, counts against the metadata, labels and their balance, whether the order is
    random, and the shuffle buffer that training needs. Exit code 3 means damage, missing or extra
    shards, or counts that differ.
    """
    from tfrtool.cli.render.dataset_text import dataset_page
    from tfrtool.inspection.dataset.dataset_summary import inspect_dataset
    from tfrtool.storage.plain import plain

    with Bars() as bars:
        summary = inspect_dataset(dataset, label=label, workers=workers, on_progress=bars)
    emit(plain(summary) if as_json else dataset_page(summary))
    return Outcome.DAMAGE if summary.faults else Outcome.FINE
