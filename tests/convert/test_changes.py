"""Changes to one record: what is named changes, all else stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import payloads
from tests.photos import image_bytes
from tfrtool.convert.class_edit import UneditableError
from tfrtool.convert.edit import Changes, cast_value
from tfrtool.errors import UsageError
from tfrtool.examples.example import DType, decode_example, encode_example, feature_name
from tfrtool.examples.parsing import parse_example
from tfrtool.examples.proto import example_pb2 as pb

_NAMES = [feature_name(key) for key in (b"a", b"b", b"c", b"caf\xe9", "ü".encode())]
_named = st.sets(st.sampled_from(_NAMES)).map(tuple)


def _keys(payload: bytes) -> list[str]:
    message = pb.SequenceExample.FromString(payload)
    entries: list[Any] = [*message.context.feature, *message.feature_lists.feature_list]
    return [feature_name(entry.key) for entry in entries]


@given(payloads, _named)
def test_select_and_drop_divide_a_record(payload: bytes, names: tuple[str, ...]) -> None:
    """What one leaves out the other keeps, in order; and each does nothing more a second time."""
    kept = Changes(select=names).apply(payload)
    rest = Changes(drop=names).apply(payload)
    assert _keys(kept) == [key for key in _keys(payload) if key in names]
    assert _keys(rest) == [key for key in _keys(payload) if key not in names]
    assert Changes(select=names).apply(kept) == kept
    assert Changes(drop=names).apply(rest) == rest


@given(payloads, st.permutations(_NAMES))
def test_renames_are_undone_by_their_inverse(payload: bytes, names: list[str]) -> None:
    """Names may change places at once, and come back; bytes without those names stay the same."""
    there = dict(zip(_NAMES, names, strict=True))
    renamed = Changes(rename=there).apply(payload)
    assert _keys(renamed) == [there[key] for key in _keys(payload)]
    assert Changes(rename={new: old for old, new in there.items()}).apply(renamed) == payload
    assert Changes(rename={"not there": "new"}).apply(payload) == payload


@given(payloads)
def test_what_is_added_is_dropped_again(payload: bytes) -> None:
    """Adding and dropping is nothing, with unknown fields and doubled names, too."""
    odd = payload + b"\xfa\x01\x02hi"  # field 31, which no Example has
    added = Changes(add=encode_example({"new": 7})).apply(odd)
    assert decode_example(added).values("new") == (7,)
    assert b"\xfa\x01\x02hi" in added
    removed = Changes(drop=("new",)).apply(added)
    assert removed in (odd, b"\x0a\x00" + odd)  # a context, where there was none, is empty now


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (16777216, DType.FLOAT32, 16777216.0),
        (16777217, DType.FLOAT32, None),  # which float32 does not have
        (3.0, DType.INT64, 3),
        (3.5, DType.INT64, None),
        (float("nan"), DType.INT64, None),
        (float("inf"), DType.INT64, None),
        (2.0**63, DType.INT64, None),
        (b" -12\n", DType.INT64, -12),
        (b"9223372036854775808", DType.INT64, None),
        (b"1_000", DType.INT64, None),
        (b"1_000", DType.FLOAT32, None),
        ("\u0663".encode(), DType.INT64, None),
        (b"", DType.INT64, None),
        (b"9" * 5000, DType.INT64, None),
        (b"1e39", DType.FLOAT32, None),
        (b"1e999", DType.FLOAT32, None),
        (b"-inf", DType.FLOAT32, float("-inf")),
        (b"0.1", DType.FLOAT32, 0.1),
        (0.10000000149011612, DType.STRING, b"0.1"),
        (b"\xff\xfe", DType.FLOAT32, None),
    ],
)
def test_casts_lose_nothing(value: Any, dtype: DType, want: Any) -> None:
    """A value that the other type does not have is an error, not another value."""
    if want is None:
        with pytest.raises((ValueError, OverflowError)):
            cast_value(value, dtype)
    else:
        assert cast_value(value, dtype) == want


def test_steps_of_feature_lists_are_cast_and_empty_ones_too() -> None:
    """Each step gets the type, without values too; what has no kind has none."""
    message = pb.SequenceExample()
    steps = message.feature_lists.feature_list.add(key=b"x").value.feature
    steps.add().int64_list.value.extend([1, 2])
    steps.add().int64_list.SetInParent()
    steps.add().SetInParent()
    changes = Changes(cast={"x": DType.FLOAT32})
    cast = changes.apply(message.SerializeToString())
    held = pb.SequenceExample.FromString(cast).feature_lists.feature_list[0].value.feature
    assert [step.WhichOneof("kind") for step in held] == ["float_list", "float_list", None]
    assert parse_example(cast) == {"x": [[1.0, 2.0], [], []]}
    assert changes.apply(cast) is cast


def test_hostile_payloads_and_names_are_refused() -> None:
    """No message, and a record whose name is taken by another feature, are errors that say so."""
    payload = encode_example({"a": 1, "b\n\x1b[31m": 2})
    for changes, data in (
        (Changes(drop=("a",)), b"\xff\xff\xff"),
        (Changes(rename={"a": "b\n\x1b[31m"}), payload),
        (Changes(add=encode_example({"a": 1})), payload),
        (Changes(cast={"a": DType.INT64}), encode_example({"a": b"secret"})),
    ):
        with pytest.raises(UneditableError) as caught:
            changes.apply(data)
        assert "secret" not in str(caught.value)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        (Changes(drop=("imag",)), "'image'"),
        (Changes(select=("lable",)), "'label'"),
        (Changes(drop=("image",), rename={"image": "x"}), "'image' is dropped"),
        (Changes(select=("label",), image="image"), "'image', which is dropped"),
        (Changes(rename={"image": "label"}), "two features.*'label'"),
        (Changes(rename={"image": "x"}, add=encode_example({"x": 1})), "two features"),
        (Changes(rename={"image": "x", "label": "x"}), "two features"),
    ],
)
def test_contradictions_are_refused(changes: Changes, want: str) -> None:
    """Names that are unknown, or would be there twice, are found before anything is written."""
    with pytest.raises(UsageError, match=want):
        changes.check(["image", "label"])


def test_images_are_encoded_anew_with_what_is_said_of_them() -> None:
    """A PNG stays one unless a format is asked for; sizes and formats beside it are set."""
    from tfrtool.images.recipe import Encode, ImageRecipe, Resize

    about = {"image/height": 12, "image/width": 16, "image/format": "png", "height": 5, "other": 3}
    payload = encode_example({"image/encoded": image_bytes("PNG"), **about})
    recipe = ImageRecipe(resize=Resize(width=8, height=4))
    same = Changes(image="image/encoded", recipe=recipe, same_format=True).apply(payload)
    found = parse_example(same)
    assert bytes(found.pop("image/encoded")).startswith(b"\x89PNG")  # type: ignore[arg-type]
    assert found == {
        "image/height": 4, "image/width": 8, "image/format": b"png", "height": 4, "other": 3,
    }  # fmt: skip
    jpeg = ImageRecipe(encode=Encode.JPEG)
    anew = parse_example(Changes(image="image/encoded", recipe=jpeg).apply(payload))
    assert bytes(anew["image/encoded"]).startswith(b"\xff\xd8")  # type: ignore[arg-type]
    assert (anew["image/format"], anew["image/width"]) == (b"jpeg", 16)
    good = encode_example({"image/encoded": image_bytes()})
    assert Changes(image="image/encoded", recipe=ImageRecipe()).apply(good) is good
    with pytest.raises(UneditableError, match="image/encoded"):
        Changes(image="image/encoded", recipe=jpeg).apply(encode_example({"image/encoded": b"no"}))
