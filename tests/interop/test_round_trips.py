"""Files of other writers come back from each format as they were; `round_trips` takes all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspection.real_files import EXAMPLE_FILES
from tests.interop.round_trips import FORMATS, round_trip

MORE = [
    "nucleus/test_vaf.vcf.golden.tfrecord",
    "tf_ranking/examples/data/eval_elwc.tfrecord",
    "tfrecorder/discarded-data-00000-of-00001",
]
SLOW = (
    "mnist",
    "spotify",
    "tfrecord_sequence",
    "tfrecorder/test",
    "train",
    "unlabelled",
    "pegasus",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_real_files_come_back(name: str, shared_data: Path, tmp_path: Path) -> None:
    """Examples, SequenceExamples, other protos and no records at all: values are equal."""
    files = [*EXAMPLE_FILES, *MORE]
    if name == "arrayrecord":  # each file is read by a process of its own
        files = [*files[::6], *MORE]
    for number, file in enumerate(files):
        if not any(part in file for part in SLOW):
            folder = tmp_path / str(number)
            folder.mkdir()
            found = round_trip(shared_data / "tfrecord" / file, name, folder)
            assert found.outcome in ("equal", "bytes"), found
