"""``tfrtool append``."""

from typing import Any

import click

from tfrtool.cli.job_options import RUN_OPTIONS, run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, WORKERS, command


@command(
    "tfrtool append ~/tensorflow_datasets/pets/1.0.0 more_photos --dedupe",
    "tfrtool append shards/pets more_photos --out shards/more_pets --split train",
    "tfrtool append ~/tensorflow_datasets/pets/1.0.0 'new/*.tfrecord' --version 2.0.0",
    options={
        "Source": {
            "--split NAME": "Put all of SOURCE into this split.  [default: SOURCE's own splits, or "
            "split like DATASET]",
            "--new-classes": "Accept classes that DATASET doesn't have; they are numbered after "
            "its own.",
            "--dedupe": "Skip images that DATASET already has, or that SOURCE repeats, and list "
            "them (exit code 3).",
        },
        "Output": {
            "--out DIR": "Directory of the new version. Required if DATASET is not named after a "
            "version.  [default: next to DATASET]",
            "--version X.Y.Z": "Number of the new version.  [default: next minor version]",
            **RUN_OPTIONS,
        },
        "Execution": WORKERS,
    },
    kinds={"--out": OUTPUT_OR_URL},
)
@click.argument("dataset", type=INPUT)
@click.argument("source", type=INPUT)
def append_command(dataset: str, source: str, **words: Any) -> Outcome:
    """Add images or records to a dataset, as a new version of it.

    DATASET is a dataset directory. It stays unchanged: the new version has hard links to its
    shards. SOURCE holds images, as for tfrtool write, or shards. Existing records keep their split,
    and classes their number.

    Exit code 3 means that images or records were skipped.
    """
    from tfrtool.convert.append import append

    return run_job(append, dataset, source, loads_tensorflow=True, **words)
