"""Payloads that are checked many at a time: the verdicts are those of one at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples.strategies import feature_maps, int64, string
from tests.examples.wire import field, mutants, sequence_mutants, varint
from tfrtool.examples import whole_records
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.examples.whole_records import shortened, whole_ones
from tfrtool.inspection.verify import payload_check
from tfrtool.inspection.verify.payload_check import PayloadCheck, short_record
from tfrtool.records.framing import Record

EMPTY_FEATURE = field(1, field(1, field(1, b"a"), field(2)))
GOOD = encode_example({"a": int64(1)})
HIDDEN = field(1, GOOD[2:] + field(1, field(1, b"a") + field(2)))
"""A feature that comes once more, without a kind."""


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """Draw an Example of which a byte is changed, put in or taken out, or none."""
    data = bytearray(encode_example(draw(feature_maps)))
    at = draw(st.integers(0, len(data)))
    data[at : at + draw(st.integers(0, 1))] = draw(st.sampled_from([b"", b"\0", b"\x12", b"\xff"]))
    return bytes(data)


payloads = st.one_of(mutants(), sequence_mutants(), changed(), st.binary(max_size=12))


def forget(patch: pytest.MonkeyPatch) -> None:
    """Know no layouts, as at first."""
    patch.setattr(whole_records, "_layouts", {})


@contextmanager
def all_long() -> Iterator[None]:
    """Take values of more than four bytes for long."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (whole_records, payload_check):
            patch.setattr(module, "SHORT", 4)
        patch.setattr(whole_records, "_BRIEF", 4)
        forget(patch)
        yield


@given(st.lists(payloads, max_size=6), st.booleans())
@example([GOOD, EMPTY_FEATURE * 2, GOOD], False)
@example([GOOD, HIDDEN, GOOD], False)
@example([GOOD, EMPTY_FEATURE[:-1], b"\0" + GOOD], False)
def test_verdicts(drawn: list[bytes], slim: bool) -> None:
    """Records have the same problems together as each for itself, as they are and shortened."""
    alone, together = PayloadCheck(), PayloadCheck()
    expected = [(n, why) for n, data in enumerate(drawn) if (why := alone.problem(data))]
    records = [Record(n, 0, data, 0) for n, data in enumerate(drawn)]
    with all_long():
        held = [short_record(record) if slim else record for record in records]
        found = [(record.index, why) for record, why in together.problems(held)]
    assert found == expected
    assert together.sequences == alone.sequences


@given(payloads, st.booleans())
def test_whole_is_sound(payload: bytes, sequences: bool) -> None:
    """What is whole has no problem; so has what is whole without its long values."""
    with all_long():
        shorter = shortened(payload)
    for short in filter(None, (shortened(payload), shorter)):
        assert PayloadCheck().problem(short) == PayloadCheck().problem(payload)
        if whole_ones([short], sequences=sequences):
            assert PayloadCheck().problem(payload) is None


@given(st.lists(feature_maps, max_size=5))
def test_what_is_written_is_whole(written: list[dict[str, Feature]]) -> None:
    """Examples as writers make them are told together; one that may be odd costs no other."""
    made = [{key: one for key, one in each.items() if one.dtype} for each in written]
    short = [shortened(encode_example(each)) for each in made]
    known = {GOOD, *(one for one in short if one is not None)}
    assert {one for one in known if b"\x12\0" not in one} <= {*whole_ones(known, sequences=False)}


@pytest.mark.parametrize("values", [1, 3])
def test_long_values_are_skipped(values: int) -> None:
    """Of photographs and embeddings little is parsed, and nothing of their names is lost."""
    image, floats = string(b"\xff\xd8" * 9000), Feature(dtype=DType.FLOAT32, values=(1.5,) * 6000)
    features = {f"image/{n}": image for n in range(values)}
    payload = encode_example(features | {"embedding": floats, "label": int64(3)})
    short = shortened(payload)
    assert short is not None
    assert len(short) < 200
    assert all(name.encode() in short for name in (*features, "embedding", "label"))
    assert whole_ones([short], sequences=False)


@pytest.mark.parametrize(
    "broken",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data.replace(b"\x12\x88\x27\x0a\x85\x27\x0a", b"\x12\x88\x27\x0a\x85\x27\x12"),
        lambda data: data.replace(b"\x0a\x82\x27", b"\x0a\x83\x27"),
        lambda data: data.replace(b"\x0a\x05image", b"\x0a\x06image"),
    ],
)
def test_a_broken_frame_is_not_shortened(broken: object) -> None:
    """A length that doesn't fit, around a long value or in it, is told as without shortening."""
    good = encode_example({"image": string(bytes(4994)), "label": int64(1)})
    data = broken(good)  # type: ignore[operator]
    assert data != good
    assert PayloadCheck().problem(good) is None
    short = short_record(Record(0, 0, data, 0)).payload
    assert PayloadCheck().problem(short) == PayloadCheck().problem(data) is not None


def test_floats_of_half_a_number() -> None:
    """A long list of floats whose bytes are no floats is no Example, shortened or not."""
    values = struct.pack("<1000f", *range(1000))[:-1]
    payload = field(1, field(1, field(1, b"a"), field(2, field(2, field(1, values)))))
    check, record = PayloadCheck(), Record(0, 0, payload, 0)
    assert [*check.problems([short_record(record)])] == [(record, payload_check.NO_EXAMPLE)]


@st.composite
def photographs(draw: st.DrawFn) -> bytes:
    """Draw an Example with a long string, of whose five lengths one may be wrong or too wide."""
    near = st.builds(int.__add__, st.sampled_from([2048, 16_384]), st.integers(-90, 90))
    same = st.sampled_from([3000, 20_000])
    data = bytes(draw(st.one_of(near, same, st.integers(1000, 40_000))))
    key = field(1, draw(st.sampled_from([b"image", b"image", b"imago", b"images"])))
    ends = st.sampled_from([b"", field(1, field(1, b"label"), field(2, field(3, b"\x0a\x01\0")))])
    wrong = draw(st.sampled_from([*[None] * 6, *range(5)]))
    for depth, tag in enumerate((b"\x0a", b"\x0a", b"\x12", b"\x0a", b"\x0a")):
        if depth == 3:
            data = key + data
        elif depth == 4:
            data = draw(ends) + data + draw(ends)
        size = bytearray(varint(len(data)))
        if depth == wrong and draw(st.booleans()):
            size[-1] |= 0x80
            size.append(0)
        elif depth == wrong:
            size = bytearray(varint(len(data) + draw(st.integers(-3, 3))))
        data = tag + size + data
    if draw(st.sampled_from([False, False, True])):
        at = draw(st.integers(0, 60))
        data = data[:at] + draw(st.binary(max_size=2)) + data[at + draw(st.integers(0, 2)) :]
    return data


@given(st.lists(photographs(), min_size=2, max_size=12))
def test_layouts_that_were_met(drawn: list[bytes]) -> None:
    """What is left of a payload doesn't depend on those before, whose layout it may have."""
    with pytest.MonkeyPatch.context() as patch:
        expected = []
        for data in drawn:
            forget(patch)
            expected.append(shortened(data))
        forget(patch)
        for size in (3000, 20_000) * 2:
            shortened(encode_example({"image": string(bytes(size))}))
        assert [shortened(data) for data in drawn * 2] == expected * 2


@pytest.mark.parametrize("sizes", [(2049, 2100, 2110), (16_384, 20_000, 30_000)])
def test_images_of_any_size_have_one_layout(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of images of one feature, only the first is taken apart field by field."""
    first, *others = [encode_example({"a": int64(1), "image": string(bytes(n))}) for n in sizes]
    forget(monkeypatch)
    short = shortened(first)
    monkeypatch.setattr(whole_records, "_held", None)
    assert [shortened(one) for one in others] == [short] * 2
