"""``tfrtool write``."""

from __future__ import annotations

from pathlib import Path

import click

from tfrtool.cli.native_stderr import starting_tensorflow
from tfrtool.cli.options import debug_option, json_option
from tfrtool.cli.outcome import Outcome
from tfrtool.cli.output import emit, emit_json, warn
from tfrtool.cli.parameters import SIZE
from tfrtool.records.compression import Compression

__all__ = ["write_command"]


@click.command(
    name="write",
    epilog="\b\nExample:\n"
    "  tfrtool write photos shards --split train=0.8 --split validation=0.2 --shards 4",
)
@click.argument("source")
@click.argument("dataset")
@click.option("--name", help="Dataset name; the default is made from DATASET's last folder.")
@click.option("--version", metavar="X.Y.Z", help="Dataset version; the default is 1.0.0.")
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="NAME=FRACTION",
    help="A split and its share of each class; again for each. The default is all in train.",
)
@click.option("--shards", type=click.IntRange(1, 99_999), metavar="N", help="Shards of each split.")
@click.option(
    "--shard-size",
    type=SIZE,
    default="128MiB",
    show_default=True,
    help="Size of a shard, where --shards is not given.",
)
@click.option(
    "--seed",
    type=click.IntRange(-(2**63), 2**63 - 1, clamp=False),
    default=0,
    show_default=True,
    metavar="N",
    help="Decides the splits and the order of records.",
)
@click.option("--no-shuffle", is_flag=True, help="Keep the order of the file names.")
@click.option(
    "--compression",
    type=click.Choice([item.value for item in Compression]),
    default="none",
    show_default=True,
    help="Compression of the shards. TFDS can read none only.",
)
@click.option(
    "--on-bad",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    show_default=True,
    help="Leave out images that don't decode (exit code 3), or stop at them.",
)
@click.option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Threads; the cores.")
@click.option("--overwrite", is_flag=True, help="Replace what tfrtool wrote to DATASET before.")
@json_option
@debug_option
def write_command(
    source: str,
    dataset: str,
    name: str | None,
    version: str | None,
    splits: tuple[str, ...],
    shards: int | None,
    shard_size: int,
    seed: int,
    no_shuffle: bool,
    compression: str,
    on_bad: str,
    workers: int | None,
    overwrite: bool,
    as_json: bool,
) -> Outcome:
    """Write the images of class folders to sharded TFRecords.

    SOURCE holds a folder for each class (cat/1.jpg, dog/2.jpg), or one folder that does. DATASET
    gets the shards, the metadata that makes them a TFDS dataset, and write_report.json, which
    tells what became of every image. Exit code 3 means that some were left out.
    """
    from tfrtool.cli.progress import Bars
    from tfrtool.cli.write_text import render_report
    from tfrtool.writing.options import WriteOptions, dataset_identity, parse_splits
    from tfrtool.writing.write import write_dataset

    name, version = dataset_identity(Path(dataset), name, version)
    options = WriteOptions(
        source=Path(source),
        dataset=Path(dataset),
        name=name,
        version=version,
        splits=parse_splits(splits),
        shards=shards,
        shard_bytes=shard_size,
        seed=seed,
        shuffle=not no_shuffle,
        compression=Compression(compression),
        skip_bad=on_bad == "skip",
        overwrite=overwrite,
        **({} if workers is None else {"workers": workers}),
    )
    if options.compression is not Compression.NONE:
        warn(f"TFDS can't read {compression} shards; tf.data and tfrtool can")
    with Bars(unit="img") as bars:
        report = write_dataset(
            options,
            on_progress=lambda p: bars.show(p.phase, p.done, p.total),
            before_writing=_start_tensorflow,
        )
    if as_json:
        emit_json(report.to_json())
    else:
        emit(render_report(report))
    for split in report.splits:
        if len(split.labels) == 1:
            warn(f"split {split.name!r} has one class only; a classifier needs two")
    return Outcome.DAMAGE if report.rejected else Outcome.FINE


def _start_tensorflow() -> None:
    with starting_tensorflow():
        from tfrtool.writing import record_sink  # noqa: F401
