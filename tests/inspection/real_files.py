"""The files of Examples among those that other software wrote."""

from __future__ import annotations

from pathlib import Path

from tests.more import more
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records

__all__ = ["EXAMPLE_FILES", "SOME_FILES", "payloads_of"]

EXAMPLE_FILES = [
    "pegasus/data.tfrecord",
    "spotify_tfreader/part-00000-of-00004.tfrecords",
    "tf_agents/antmaze-medium-play-v0_0.tfrecord",
    "tfds_mnist/mnist-test.tfrecord-00000-of-00001",
    "tfrecorder/test-00000-of-00001.tfrecord.gz",
    "tfx_csv_example_gen/Split-eval/data_tfrecord-00000-of-00012.gz",
    "tfx_csv_example_gen/unlabelled/data_tfrecord-00000-of-00012.gz",
    "tfx_external/tfrecord_sequence/data_tfrecord-00000-of-00001.gz",
    "tfx_penguin/Split-eval/data_tfrecord-00000-of-00001.gz",
    "titanic/test.tfrecord",
    "titanic/train.tfrecord",
    "ygg/sentences.tfe-tfrecord",
    "ygg/toy.nocompress-tfe-tfrecord-00000-of-00002",
]

_KINDS = ("pegasus", "antmaze", "unlabelled", "sequence", "titanic/train", "ygg/toy")
"""Other compressions, types, lengths and feature lists."""

SOME_FILES = [
    name if any(part in name for part in _KINDS) else more(name) for name in EXAMPLE_FILES
]
"""Parameters, of which the gate has some."""


def payloads_of(path: Path, limit: int = 300) -> list[bytes]:
    """Return the payloads of a shard's first records."""
    found: list[bytes] = []
    with path.open("rb") as file:
        for item in read_records(file):
            assert isinstance(item, Record)
            found.append(item.payload)
            if len(found) == limit:
                break
    return found
