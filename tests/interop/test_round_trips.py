"""Files of other writers come back from each format as they were."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.inspection.real_files import EXAMPLE_FILES
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import Feature, PayloadKind, decode_example
from tfrtool.records.wire import read_fields

NAMES = [name for name in FORMATS if name not in ("tfrecord", "hf", "arrow")]
"""The last two are read and written as Parquet is."""

MORE = [
    "nucleus/test_vaf.vcf.golden.tfrecord",
    "tf_ranking/examples/data/eval_elwc.tfrecord",
    "tfrecorder/discarded-data-00000-of-00001",
]
"""Other protos, and no records at all."""

SLOW = (
    "mnist",
    "spotify",
    "tfrecord_sequence",
    "tfrecorder/test",
    "train",
    "unlabelled",
    "pegasus",
)
FILES = [*(name for name in EXAMPLE_FILES if not any(part in name for part in SLOW)), *MORE]


def meaning(payload: bytes) -> str:
    """Return the features of a payload as text, in which all NaNs are the same.

    Those of a list of Examples are the features of these.
    """
    if describe_bytes(payload) == "ExampleListWithContext":
        parts = sorted(read_fields(payload), key=itemgetter(0))
        return repr([(number, meaning(part)) for number, part in parts if isinstance(part, bytes)])
    found = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    lists = {name: [_values(step) for step in steps] for name, steps in found.feature_lists.items()}
    return repr((sorted((k, _values(v)) for k, v in found.features.items()), sorted(lists.items())))


def _values(feature: Feature) -> object:
    return feature.dtype and feature.dtype.value, list(feature.values)


def payloads(path: Path) -> list[bytes]:
    """Return the payloads of all intact records."""
    return [record.payload for record in tfrtool.read_records(path, on_fault="skip")]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_real_files_come_back(name: Any, shared_data: Path, tmp_path: Path) -> None:
    """Examples, SequenceExamples, other protos and no records at all: values are equal.

    Each file goes through every second format, and each format takes about half of the files.
    """
    first = NAMES.index(name) % 2
    # Each file is read by a process of its own from ArrayRecord.
    files = [*FILES[::6], *MORE] if name == "arrayrecord" else FILES[first::2]
    for number, file in enumerate(files):
        path = shared_data / "tfrecord" / file
        there, back = tmp_path / f"{number}-there", tmp_path / f"{number}-back.tfrecord"
        tfrtool.convert(path, there, to=name, from_format="tfrecord")
        tfrtool.convert(there, back, from_format=name)
        assert [*map(meaning, payloads(back))] == [*map(meaning, payloads(path))], file
