"""Records become files of each format and come back as they were."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tfrtool
from tests.examples.strategies import payloads
from tests.records.strategies import read_strictly, shard_of
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.examples.example import Feature, PayloadKind, decode_example

NAMES = [name for name in FORMATS if name not in ("tfrecord", "arrayrecord")]
"""ArrayRecord has its own tests: each file is read by another process."""


def meaning(payload: bytes) -> str:
    """Return the features of a payload as text: to that, all NaNs are the same."""

    def values(feature: Feature) -> object:
        return feature.dtype and feature.dtype.value, list(feature.values)

    found = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    lists = {name: [*map(values, steps)] for name, steps in found.feature_lists.items()}
    return repr((sorted((k, values(v)) for k, v in found.features.items()), sorted(lists.items())))


@pytest.mark.parametrize("to", NAMES)
@settings(max_examples=settings().max_examples // 3)
@given(
    held=st.lists(payloads, min_size=1, max_size=5),
    exact=st.booleans(),
    shards=st.integers(1, 3),
    data=st.data(),
)
def test_any_records_come_back(
    to: str, held: list[bytes], exact: bool, shards: int, data: st.DataObject
) -> None:
    """Values are equal, whatever is missing, empty or without a kind; with exact all bytes are.

    So they are from any file of several, whichever rows it begins with.
    """
    shards = min(shards, len(held))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.tfrecord").write_bytes(shard_of(held))
        try:
            report = tfrtool.convert(
                folder / "a.tfrecord",
                folder / "there",
                to=to,  # type: ignore[arg-type]
                exact=exact,
                workers=1,
            )
        except tfrtool.SchemaError:
            assume(to != "csv")  # which has no rows without a column
            raise
        assert report.job.records_out == len(held)
        tfrtool.convert(folder / "there", folder / "back", shards=shards, workers=1)
        back = []
        for path in sorted((folder / "back").glob("*.tfrecord-*")):
            found = read_strictly(path.read_bytes())
            assert found is not None
            back += found
        assert [*map(meaning, back)] == [*map(meaning, held)]
        if exact:
            assert back == held
        chosen = data.draw(st.sampled_from(["jsonl", "webdataset", "parquet"]))
        tfrtool.convert(folder / "there", folder / "chain", to=chosen, workers=1)  # type: ignore[arg-type]
        tfrtool.convert(folder / "chain", folder / "chain.tfrecord", workers=1)
        again = read_strictly((folder / "chain.tfrecord").read_bytes())
        assert [*map(meaning, again or [])] == [*map(meaning, held)]
