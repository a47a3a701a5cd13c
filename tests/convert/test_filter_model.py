"""Filtering compared with Python: three-valued logic, lists, duplicates and samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.examples.tables import (
    Location,
    Row,
    placements,
    read_splits,
    rows_of_columns,
    write_placed,
)
from tests.inspection.rows.conditions import columns_of, conditions
from tfrtool.examples.example import encode_example


def _firsts(numbers: Sequence[int], keys: Sequence[Hashable | None]) -> list[int]:
    """Return the numbers of records that are the first with their key, or have none."""
    seen: set[Hashable] = set()
    first = []
    for number in numbers:
        key = keys[number]
        if key is None or key not in seen:
            first.append(number)
        seen.add(key)
    return first


def _expected_splits(
    kept: Sequence[int], locations: Sequence[Location], payloads: Sequence[bytes]
) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for number in kept:
        found.setdefault(locations[number].split, []).append(payloads[number])
    return found


@given(data=st.data())
def test_conditions_have_three_valued_logic(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Records stay for which a condition is true, not false or NULL, in order and split."""
    rows = data.draw(rows_of_columns(least=5))
    columns = columns_of(rows)
    condition = data.draw(conditions(columns))
    payloads = [encode_example(row) for row in rows]
    folder = tmp_path_factory.mktemp("where")
    sizes = data.draw(placements(len(rows), ("train", "test")))
    locations = write_placed(folder / "in", payloads, sizes)
    plain = [{column.name: column.value(row) for column in columns} for row in rows]
    kept = [number for number, row in enumerate(plain) if condition.holds(row) is True]
    if not kept:
        with pytest.raises(tfrtool.WriteError, match="no records match"):
            tfrtool.filter_records(folder / "in", folder / "out", where=condition.sql, workers=1)
        return
    report = tfrtool.filter_records(folder / "in", folder / "out", where=condition.sql, workers=1)
    found = {split: records for split, records in read_splits(folder / "out").items() if records}
    assert found == _expected_splits(kept, locations, payloads)
    assert report.skipped == ({"where": len(rows) - len(kept)} if len(kept) < len(rows) else {})


def _sampled(records: Sequence[int], sample: int | str, classes: Sequence[Hashable] | None) -> int:
    """Return how many of these records a sample has."""
    sizes = Counter(None if classes is None else classes[number] for number in records)
    if isinstance(sample, int):
        return sum(min(sample, size) for size in sizes.values())
    share = int(sample.rstrip("%")) / 100
    return sum(max(1, round(share * size)) for size in sizes.values())


@given(data=st.data())
def test_lists_duplicates_and_samples(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each rule drops what a set of Python drops, one after the other; a sample is drawn last."""
    rows = data.draw(rows_of_columns(least=5))
    rows += data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=6))
    payloads = [encode_example(row) for row in rows]
    folder = tmp_path_factory.mktemp("rules")
    sizes = data.draw(placements(len(rows), ("test", "train")))
    locations = write_placed(folder / "in", payloads, sizes)
    kept, rules, skipped = [*range(len(rows))], dict[str, Any](), dict[str, int]()
    numbers = st.sets(st.sampled_from(range(len(rows))), min_size=1)
    features = sorted({name for row in rows for name, feature in row.items() if feature.values})
    keys = {name: [_key(row, name) for row in rows] for name in features}
    for rule in data.draw(
        st.sets(st.sampled_from(["keep", "drop", "dedupe", "dedupe_by"]), min_size=2)
    ):
        rules[rule] = True
    for rule in ("keep", "drop", "dedupe", "dedupe_by"):
        before = len(kept)
        if rule not in rules or (rule == "dedupe_by" and not features):
            rules.pop(rule, None)
            continue
        if rule in ("keep", "drop"):
            listed = data.draw(numbers)
            lines = [f"{locations[n].shard} {locations[n].record}\n" for n in listed]
            (folder / rule).write_text("".join(lines))
            rules[rule] = folder / rule
            kept = [number for number in kept if (number in listed) is (rule == "keep")]
        elif rule == "dedupe":
            kept = _firsts(kept, payloads)
        else:
            rules[rule] = data.draw(st.sampled_from(features))
            kept = _firsts(kept, keys[rules[rule]])
        if before > len(kept):
            skipped[rule.replace("_", "-")] = before - len(kept)
    sample = data.draw(st.sampled_from([None, 1, 2, 5, "10%", "50%", "100%"]))
    count = len(kept)
    if sample is not None:
        rules["sample"] = sample
        rules["sample_per"] = data.draw(st.sampled_from([None, *features]))
        count = _sampled(kept, sample, keys.get(rules["sample_per"]))
    if not kept:
        with pytest.raises(tfrtool.WriteError, match="no records match"):
            tfrtool.filter_records(folder / "in", folder / "out", workers=1, **rules)
        return
    if count < len(kept):
        skipped["sample"] = len(kept) - count
    report = tfrtool.filter_records(folder / "in", folder / "out", workers=1, **rules)
    assert (report.records_out, report.skipped) == (count, skipped)
    expected, found = _expected_splits(kept, locations, payloads), read_splits(folder / "out")
    assert sum(map(len, found.values())) == count
    for split, records in found.items():
        rest = iter(expected.get(split, []))
        assert all(any(one == record for one in rest) for record in records)


def _key(row: Row, name: str) -> str | None:
    """Return what the values of a feature are compared by; None if the record has none."""
    feature = row.get(name)
    return repr(feature) if feature is not None and feature.values else None
