"""features.json as a tree, in both notations, and what of it can't be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.examples.fields import tree_lines
from tfrtool.features.tfds_tree import tfds_of_tree, tree_of_tfds

TFDS = "tensorflow_datasets.core.features."


def feature(name: str, **content: Any) -> dict[str, Any]:
    """Return a feature in the present notation."""
    return {"pythonClassName": f"{TFDS}{name}", **content}


def features_dict(**parts: Any) -> dict[str, Any]:
    """Return a FeaturesDict in the present notation."""
    return feature("features_dict.FeaturesDict", featuresDict={"features": parts})


def tensor(dtype: str, *sizes: Any, encoding: str = "none") -> dict[str, Any]:
    """Return a tensor in the present notation."""
    content = {"dtype": dtype, "encoding": encoding, "shape": {"dimensions": [*sizes]}}
    return feature("tensor_feature.Tensor", tensor=content)


def sequence(item: Any, length: Any = "-1", name: str = "Sequence") -> dict[str, Any]:
    """Return a Sequence or Dataset in the present notation."""
    module = "sequence_feature" if name == "Sequence" else "dataset_feature"
    return feature(f"{module}.{name}", sequence={"feature": item, "length": length})


def lines_of(content: Any) -> list[str]:
    """Return the tree as lines."""
    return [*tree_lines(tree_of_tfds(content)[0])]


def in_a_struct(item: Any) -> dict[str, Any]:
    """Return a FeaturesDict with one feature."""
    return features_dict(a=item)


PRESENT = features_dict(
    image=feature(
        "image_feature.Image", image={"dtype": "uint8", "shape": {"dimensions": ["-1", "-1", "3"]}}
    ),
    label=feature("class_label_feature.ClassLabel", classLabel={"numClasses": "3"}),
    name=feature("text_feature.Text", text={}),
    objects=sequence(
        features_dict(
            bbox=feature("bounding_boxes.BBoxFeature", boundingBox={}),
            area=tensor("float32"),
        )
    ),
    steps=sequence(tensor("int8", "2", "3"), name="Dataset"),
    pair=sequence(tensor("bool"), length="2"),
    depth=tensor("float32", "-1", "-1", encoding="zlib"),
    words=feature("translation_feature.Translation", translation={"languages": ["de", "en"]}),
    any_words=feature(
        "translation_feature.TranslationVariableLanguages",
        translation={"languages": ["de"], "variableLanguagesPerExample": True},
    ),
)


def older(name: str, content: Any, proto: str = "") -> dict[str, Any]:
    """Return a feature in the notation of TFDS before 4.5."""
    return {"type": f"{TFDS}{name}", "content": content, "proto_cls": proto}


OLDER = older(
    "features_dict.FeaturesDict",
    {
        "image": older(
            "image_feature.Image",
            {"shape": [None, None, 3], "dtype": "uint8", "encoding_format": "png"},
        ),
        "label": older("class_label_feature.ClassLabel", {"num_classes": 3}),
        "name": older("text_feature.Text", {}),
        "objects": older(
            "sequence_feature.Sequence",
            {
                "feature": older(
                    "features_dict.FeaturesDict",
                    {
                        "bbox": older("bbox_feature.BBoxFeature", {}),
                        "area": older("tensor_feature.Tensor", {"shape": [], "dtype": "float32"}),
                    },
                ),
                "length": None,
            },
        ),
        "steps": older(
            "dataset_feature.Dataset",
            {
                "feature": older("tensor_feature.Tensor", {"shape": [2, 3], "dtype": "int8"}),
                "length": -1,
            },
        ),
        "pair": older(
            "sequence_feature.Sequence",
            {
                "feature": older("tensor_feature.Tensor", {"shape": [], "dtype": "bool"}),
                "length": 2,
            },
        ),
        "depth": older(
            "tensor_feature.Tensor",
            json.dumps(
                {
                    "shape": {"dimensions": ["-1", "-1"]},
                    "dtype": "float32",
                    "encoding": "zlib",
                }
            ),
            "tensorflow_datasets.TensorFeature",
        ),
        "words": older("translation_feature.Translation", {"languages": ["de", "en"]}),
        "any_words": older(
            "translation_feature.TranslationVariableLanguages", {"languages": ["de"]}
        ),
    },
)


@pytest.mark.parametrize("content", [PRESENT, OLDER], ids=["present", "older"])
def test_both_notations(content: Any) -> None:
    """The present notation and that of TFDS before 4.5 describe the same tree."""
    assert lines_of(content) == [
        "image: image[*,*,3]",
        "label: label (3 classes)",
        "name: text",
        "objects: list of structs",
        "  bbox: float32[4]",
        "  area: float32",
        "steps: list of int8[2,3]",
        "pair: list of 2 bool",
        "depth: zlib:float32[*,*]",
        "words:",
        "  de: text",
        "  en: text",
        "any_words: list of structs",
        "  language: text",
        "  translation: text",
    ]
    root, notes = tree_of_tfds(content)
    assert notes == ()
    assert tree_of_tfds(tfds_of_tree(root))[0] == root


def test_tfds_reads_what_we_write_of_both_notations(tf: Any) -> None:  # noqa: ARG001
    """TFDS makes the features of the older notation, and of what we write of it."""
    from tensorflow_datasets.core import features as tfds

    for content in (PRESENT, tfds_of_tree(tree_of_tfds(OLDER)[0])):
        features = tfds.FeatureConnector.from_json(content)
        assert features["objects"].feature["bbox"].shape == (4,)
        assert features["depth"].shape == (None, None)


def test_features_of_other_classes() -> None:
    """A class outside TFDS is noted by name, and all other features are shown."""
    root, notes = tree_of_tfds(
        features_dict(
            mine={"pythonClassName": "my_project.Mesh", "jsonFeature": {"json": "{}"}},
            steps=sequence(features_dict(x=tensor("int64"), m={"pythonClassName": "a.Mesh"})),
            only=features_dict(m={"pythonClassName": "a.Mesh"}),
            odd=tensor("complex64"),
            gzip=tensor("int8", "3", encoding="gzip"),
            label=feature("class_label_feature.ClassLabel", classLabel={}),
        )
    )
    assert [*tree_lines(root)] == ["steps: list of structs", "  x: int64", "label: label"]
    assert notes == (
        "'mine' is not shown: unknown feature Mesh",
        "'steps/m' is not shown: unknown feature Mesh",
        "'only/m' is not shown: unknown feature Mesh",
        "'odd' is not shown: unknown type of numbers 'complex64'",
        "'gzip' is not shown: unknown encoding gzip",
    )


def test_shapes_that_records_do_not_store() -> None:
    """Tensors of unknown sizes in a list are one flat list; in a struct they have no place."""
    root, notes = tree_of_tfds(
        features_dict(
            boxes=sequence(tensor("float32", "-1", "4"), length="2"),
            empty=sequence(tensor("float32", "0")),
            free=tensor("int64", "-1", "-1"),
            steps=sequence(features_dict(x=tensor("int64"), v=tensor("int64", "-1"))),
            ragged=sequence(sequence(tensor("int64", "-1"))),
        )
    )
    assert [*tree_lines(root)] == [
        "boxes: list of float32",
        "empty: list of float32",
        "free: int64[*]",
        "steps: list of structs",
        "  x: int64",
    ]
    assert [note.partition(" ")[0] for note in notes] == [
        "the",
        "the",
        "the",
        "'steps/v'",
        "'ragged'",
    ]


def test_names_that_no_table_has() -> None:
    """Empty names, lone surrogates and NUL are noted; quotes and slashes are names."""
    text = feature("text_feature.Text", text={})
    root, notes = tree_of_tfds(
        features_dict(**{"": text, "\ud800": text, "a\0": text, "a'/\"b": text})
    )
    assert [*root.fields] == ["a'/\"b"]
    assert len(notes) == 3


@pytest.mark.parametrize(
    "content",
    [
        *(None, 3, "type", [], {}, {"type": 1}, {"featuresDict": []}, tensor("int64")),
        features_dict(a=3),
        features_dict(a=None),
        features_dict(a=tensor("int64", 1e999)),
        features_dict(a=tensor("int64", 10**30)),
        features_dict(a=tensor("int64", True)),
        features_dict(a=feature("x.T", tensor={"dtype": "int64", "shape": {"dimensions": "12"}})),
        features_dict(a=feature("x.T", tensor={"dtype": "int64", "shape": 5})),
        features_dict(a=feature("x.T", tensor=[])),
        features_dict(a=sequence(tensor("int64"), length=float("nan"))),
        features_dict(a=sequence(tensor("int64"), length="3.5")),
        features_dict(a=sequence(tensor("int64"), length=2**40)),
        features_dict(a=feature("x.C", classLabel={"numClasses": "many"})),
        features_dict(a=feature("x.I", image={"shape": {"dimensions": [None]}})),
        older("features_dict.FeaturesDict", "["),
        older("features_dict.FeaturesDict", "[" * 100_000),
        older("features_dict.FeaturesDict", '{"a": ' + "9" * 5000 + "}"),
        older("sequence_feature.Sequence", {}),
    ],
    ids=lambda content: str(content)[:40],
)
def test_what_is_no_features_json(content: Any) -> None:
    """Wrong types and sizes anywhere are a ValueError, and no other error."""
    with pytest.raises(ValueError, match=r"."):
        tree_of_tfds(content)


def test_deep_nesting() -> None:
    """Features within each other have a limit of 32 levels, however they are nested."""
    text: Any = feature("text_feature.Text", text={})
    for wrap in (sequence, in_a_struct):
        item = text
        for _ in range(30):
            item = wrap(item)
        tree_of_tfds(features_dict(a=item))
        for levels in (2, 50, 900):
            deep = item
            for _ in range(levels):
                deep = wrap(deep)
            with pytest.raises(ValueError, match="deep"):
                tree_of_tfds(features_dict(a=deep))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.data())
def test_any_json_in_place_of_a_part(data: Any) -> None:
    """Replacing any part of a features.json by other JSON makes a tree or a ValueError."""
    content = json.loads(json.dumps(data.draw(st.sampled_from([PRESENT, OLDER]))))
    part: Any = content
    parent: Any = None
    key: Any = None
    for _ in range(data.draw(st.integers(1, 8))):
        if not isinstance(part, dict | list) or not part:
            break
        keys = sorted(part) if isinstance(part, dict) else [*range(len(part))]
        parent, key = part, data.draw(st.sampled_from(keys))
        part = parent[key]
    assert parent is not None
    parent[key] = data.draw(JSON)
    try:
        root, _ = tree_of_tfds(content)
    except ValueError:
        return
    assert tree_of_tfds(tfds_of_tree(root))[0] == root
