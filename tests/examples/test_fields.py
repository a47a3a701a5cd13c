"""The spelling of types, paths in a tree, and trees as JSON and text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import UsageError
from tfrtool.examples.fields import (
    Encoding,
    Field,
    Kind,
    ListOf,
    Struct,
    Values,
    only_fields,
    select_fields,
    tree_from_json,
    tree_json,
    tree_lines,
)
from tfrtool.features.stored_layout import check_tree

SPELLINGS = (
    *("int64", "float32[7]", "zlib:uint8[*,3]", "raw:bool[2,*,*]", "zlib:float32[*,*]", "bool"),
    *("text", "bytes", "label", "image", "audio", "text[2,3]", "uint8[*,3]", "int16[0]"),
    *("timestamp", "timestamp(Europe/Berlin)", "date", "decimal(8,2)", "bfloat16", "float16"),
)

TREE = Struct(
    {
        "episode_metadata": Struct({"file_path": Values.parse("text")}),
        "image/filename": Values.parse("text"),
        "steps": ListOf(
            is_dataset=True,
            item=Struct(
                {
                    "action": Values.parse("float32[7]"),
                    "observation": Struct({"image": Values.parse("image")}),
                    "words": ListOf(item=Values.parse("text"), length=2),
                }
            ),
        ),
    }
)


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_type_has_one_spelling(text: str) -> None:
    """What is parsed is printed as it was."""
    assert str(Values.parse(text)) == text
    assert str(Values.parse(f"  {text} ".replace(",*", ", *"))) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "float", "time", "float32[", "float32[-1]", "float32[1.5]", "float32[]", "int64 [3]"),
        *("gzip:int64", "zlib:text", "raw:label", "number", "int64[999999999]", "uint8[*,*]"),
        *("int64[" + ",".join("1" * 33) + "]", "int64[99999999999,0]", "decimal(1,2,3)", "İnt64"),
    ],
)
def test_what_is_no_type(text: str) -> None:
    """Other words, too large tensors and unknown sizes that nothing stores are usage errors."""
    with pytest.raises(UsageError, match=r"invalid type .*expected a type such as int64"):
        Values.parse(text)


def test_a_path_leads_through_structs_and_lists() -> None:
    """A path names a column; it is a list if it leads through one, and suggested if misspelled."""
    chosen = select_fields(TREE, ["steps/action", "image/filename", "steps/observation"])
    assert [*tree_lines(chosen)] == [
        "steps/action: list of float32[7]",
        "image/filename: text",
        "steps/observation: list of structs",
        "  image: image",
    ]
    with pytest.raises(UsageError) as caught:
        select_fields(TREE, ["steps/actoin"])
    assert caught.value.what == "no column 'steps/actoin'"
    assert "steps/action" in (caught.value.hint or "")
    for path in ("steps/", "/steps", "steps/action/x", "step", "image", "episode_metadata/"):
        with pytest.raises(UsageError):
            select_fields(TREE, [path])


def test_a_tree_without_the_rest() -> None:
    """Fields that no path leads to are left out, where they are."""
    part = only_fields(TREE, {"steps/observation/image", "episode_metadata"})
    assert isinstance(part, Struct)
    assert [*tree_lines(part)] == [
        "episode_metadata:",
        "  file_path: text",
        "steps: list of structs",
        "  observation:",
        "    image: image",
    ]
    assert only_fields(TREE, {"steps/reward"}) is None


def test_a_tree_as_json() -> None:
    """A tree comes back from its JSON; anything else is a ValueError."""
    assert tree_from_json(tree_json(TREE)) == TREE
    steps = tree_json(TREE)["struct"]["steps"]
    assert steps["list"]["struct"]["words"] == {"list": "text", "length": 2}
    deep: object = "text"
    for _ in range(40):
        deep = {"list": deep}
    for content in (
        *(None, 3, [], {}, "no type", {"struct": []}, {"struct": {"a": 1}}, {"list": "x"}, deep),
        *({"list": "text", "length": "2"}, {"list": "text", "length": 1e9}, {"list": None}),
        {"list": "text", "dataset": 1},
    ):
        with pytest.raises(ValueError, match=r"."):
            tree_from_json(content)


VALUES = st.sampled_from([Values.parse(text) for text in SPELLINGS])
FIELDS: st.SearchStrategy[Field] = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.builds(
            lambda item, length: ListOf(item=item, length=length),
            inner,
            st.none() | st.integers(0, 9),
        ),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(Struct),
    ),
    max_leaves=6,
)


@given(FIELDS)
def test_any_tree_as_json(item: Field) -> None:
    """JSON keeps every tree, whatever its names."""
    assert tree_from_json(tree_json(item)) == item


def deep_lists(levels: int) -> Field:
    """Return lists within each other."""
    item: Field = Values.parse("int64")
    for _ in range(levels):
        item = ListOf(item=item)
    return item


def nested(levels: int) -> Struct:
    """Return a tree with so many levels."""
    return Struct({"a": deep_lists(levels - 2)})


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (nested(33), "nested more than 32 levels deep"),
        (Struct({f"f{n}": Values.parse("int64") for n in range(10_001)}), "10,001 fields"),
        (
            Struct({f"f{n}": deep_lists(16) for n in range(9_000)}),
            "records store 144,000 features",
        ),
        (Struct({"a": Struct({})}), "a struct without fields"),
        (Struct({"a": ListOf(item=Struct({}))}), "a struct without fields"),
        (Struct({"": Values.parse("int64")}), "invalid name of a field: ''"),
        (Struct({"\ud800": Values.parse("int64")}), "invalid name"),
        (Struct({"a\0": Values.parse("int64")}), "invalid name"),
        (Struct({"a": ListOf(item=Values.parse("int64"), length=-1)}), "a list of -1 items"),
        (Struct({"a": ListOf(item=Values.parse("int64[*]"))}), "don't store the shape of 'a'"),
        (Struct({"a": ListOf(item=Values.parse("int64[2,0]"))}), "don't store the shape of 'a'"),
        (
            Struct({"a/b": Values.parse("text"), "a": Struct({"b": Values.parse("text")})}),
            "two fields are stored as 'a/b'",
        ),
        (
            Struct({"a": Values.parse("zlib:int8[*,*]"), "a/shape": Values.parse("text")}),
            "two fields are stored as 'a/shape'",
        ),
    ],
)
def test_trees_that_records_cannot_store(tree: Struct, why: str) -> None:
    """A tree that is too large, or that no record can store, is a ValueError that says why."""
    with pytest.raises(ValueError, match=why):
        check_tree(tree)


def test_the_largest_trees() -> None:
    """Trees at the limits are fine, and so are names with quotes and slashes."""
    check_tree(nested(32))
    check_tree(Struct({f"f{number}": Values.parse("int64") for number in range(10_000)}))
    check_tree(Struct({"a'\"b": Values.parse("int64"), "größe/日本": Values.parse("text")}))
    check_tree(Struct({"a": ListOf(item=Values.parse("zlib:int8[*,*]"))}))
    check_tree(TREE)


def test_only_numbers_can_be_encoded() -> None:
    """Encoded text doesn't exist, also where a program makes it."""
    with pytest.raises(ValueError, match="text values can't be encoded"):
        Values(kind=Kind.TEXT, encoding=Encoding.ZLIB)
