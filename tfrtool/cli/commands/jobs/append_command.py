"""``tfrtool append``."""

from typing import Any

import click

from tfrtool.cli.job_options import RUN_OPTIONS, run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command


@command(
    "tfrtool append ~/tensorflow_datasets/pets/1.0.0 more_photos --dedupe",
    "tfrtool append shards/pets more_photos --out shards/more_pets --split train",
    "tfrtool append ~/tensorflow_datasets/pets/1.0.0 'new/*.tfrecord' --version 2.0.0",
    options={
        "--version X.Y.Z": "The new version; the default counts up the second number.",
        "--out DIR": "Where it goes; the default is beside DATASET, which then is NAME/X.Y.Z.",
        "--split NAME": "The split that all of SRC goes into; the default is SRC's own, or is "
        "drawn as the dataset was split.",
        "--new-classes": "Take classes that the dataset does not have; they come after its own.",
        "--dedupe": "Leave out and list images that are there already (exit code 3).",
        **RUN_OPTIONS,
    },
    kinds={"--out": OUTPUT_OR_URL},
)
@click.argument("dataset", type=INPUT)
@click.argument("source", type=INPUT)
def append_command(dataset: str, source: str, **words: Any) -> Outcome:
    """Make a new version of DATASET with more images or records.

    SRC: images as `write` takes them, or shards. The shards of DATASET get names in the new
    version, too (hard links), and are not written again; DATASET stays as it is. No record changes
    its split, and no class its number. Exit code 3 means that something was left out.
    """
    from tfrtool.convert.edit.append import append

    return run_job(append, dataset, source, loads_tensorflow=True, **words)
