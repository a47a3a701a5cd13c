"""Examples become files of each format and come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.examples.strategies import payloads
from tfrtool.convert.formats.convert_task import first_difference
from tfrtool.convert.formats.registry import Content, format_of, read_rows
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.records.tally import Tally
from tfrtool.writing.job_report import Faults

INFO = DatasetInfo(name="pets", version="1.0.0", splits=())
TABLES = ("parquet", "hf", "jsonl", "csv")


@pytest.mark.parametrize("name", TABLES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(held=st.lists(payloads, min_size=1, max_size=4), exact=st.booleans())
def test_any_records_come_back(
    name: str, held: list[bytes], exact: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Values are equal, whatever is missing, empty or without a kind; with exact all bytes are."""
    fold = ColumnsFold()
    fold.add(held)
    content = Content(columns=fold.columns(), exact=exact)
    before = decode_batch(held, content.columns, exact=exact)
    content = Content(columns=content.columns, exact="_payload" in before.schema.names)
    form = format_of(name)
    assume(content.schema.names or name != "csv")
    folder = tmp_path_factory.mktemp("round")
    path = folder / form.file_name.format(dataset="pets", split="train", index=0, count=1)
    with form.write(path, content) as put:
        put(before)
    for beside, text in form.beside(content, INFO).items():
        (folder / beside).write_text(text)
    scan = form.scan(path)
    assert scan.content == content
    after = [*read_rows(form, scan.piece(0, scan.rows), content, Tally(), Faults())]
    assert first_difference(iter([before]), iter(after)) is None
    back = [payload for batch in after for payload in encode_batch(batch, content.columns)]
    if content.exact or name in ("parquet", "hf"):  # to the others all NaNs are the same
        assert back == (held if content.exact else encode_batch(before, content.columns))
    for first in range(1, len(held)):  # any of the rows, alone
        (row,) = read_rows(form, scan.piece(first, 1), content, Tally(), Faults())
        assert first_difference(iter([before.slice(first, 1)]), iter([row])) is None
