"""Feature descriptions in Python source, compared with what the source itself defines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.inspecting import CAT, Capture, failure, run_json
from tests.conftest import MakeShard
from tfrtool.errors import SchemaError
from tfrtool.examples.description_file import parse_source
from tfrtool.examples.schema import Schema

COURSE = '''
import tensorflow as tf

raise SystemExit("never executed")


def read_tfrecord(example: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode an image, as in "\\d"."""
    LABELED_TFREC_FORMAT = {
        "image": tf.io.FixedLenFeature([], tf.string),  # bytes
        'label': tf.io.FixedLenFeature((), dtype=tf.int64, default_value=-1),
    }
    example = tf.io.parse_single_example(example, LABELED_TFREC_FORMAT)
    return tf.io.decode_jpeg(example["image"], channels=3), {"label": example["label"]}
'''


@pytest.mark.parametrize(
    ("source", "notations"),
    [
        (COURSE, ["image:string", "label:int64=-1"]),
        ("tf.parse_example(x, {'a': tf.FixedLenFeature([2, 2], 'float32', [[1, 2], [3, 4]])})",
         ["a:float32:[2,2]=1,2,3,4"]),
        ("d: dict = {'a': FixedLenFeature(shape=3, dtype=tf.dtypes.int64), b'b': io.VarLenFeature("
         "tf.float32)}", ["a:int64:[3]", "b:float32:[*]"]),
        ("x = f(features={'a': tf.io.FixedLenFeature((28, 28, 1), tf.float32)}, other={})",
         ["a:float32:[28,28,1]"]),
        ("d = {'a': tf.compat.v1.io.FixedLenSequenceFeature([], tf.int64, True, 7)}",
         ["a:int64:[*]"]),
        ("train = {'a': tf.io.FixedLenFeature([], tf.string, '')}\n"
         "test = {'a': tf.io.FixedLenFeature([], tf.string, default_value=b'')}", ["a:string="]),
        ("d = {}", []),
    ],
)  # fmt: skip
def test_descriptions_in_source(source: str, notations: list[str]) -> None:
    """A dict of features is found in any code, with or without a name, and never executed."""
    assert parse_source(source.encode()) == Schema.from_notation(notations)


def test_description_equals_that_of_tensorflow(tf: Any) -> None:
    """The features that are read are those that executing the source gives."""
    source = """
spec = {
    "text": tf.io.FixedLenFeature([], tf.string, "é"),
    "box": tf.io.FixedLenFeature((2, 2), tf.float32, [[0, 1], [0.5, -1]]),
    "many": tf.io.VarLenFeature(tf.int64),
    "n": tf.io.FixedLenFeature([1], tf.int64, default_value=7),
}"""
    names: dict[str, Any] = {"tf": tf}
    exec(source, names)
    ours = parse_source(source.encode()).to_feature_description(tf)
    parsed = [tf.io.parse_single_example(b"", one) for one in (ours, names["spec"])]
    for name in ("text", "box", "n"):
        assert tf.reduce_all(parsed[0][name] == parsed[1][name]), name
    assert ours["many"] == names["spec"]["many"]


def test_feature_lists_in_source() -> None:
    """The context and the feature lists are two dicts, also where all lists vary in length."""
    text = "c = {'id': tf.io.FixedLenFeature([], tf.int64)}\n"
    lists = "{'a': tf.io.VarLenFeature(tf.string)}"
    fixed = "s = {'a': tf.io.FixedLenSequenceFeature([2], tf.int64)}"
    for source, shape in ((f"{text}f(c, sequence_features={lists})", ["*"]), (text + fixed, [2])):
        context, steps = parse_source(source.encode())
        assert (str(context), steps.is_list) == ("id:int64", True)
        assert steps.to_json()["shape"] == shape


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "no feature description: expected a dict"),
        ("d = {'a': 1}\ne = {'b': 2}", "no feature description"),
        ("d = {\n 'a': 1}", "line 2: not a feature: expected tf.io.FixedLenFeature, "),
        ("d = {'a': tf.io.FixedLenFeature([], tf.int64),\n **x}", "line 2: the name of a feature"),
        ("d = {'a': tf.io.FixedLenFeature([], tf.int64),\n 'b': tf.io.RaggedFeature(tf.int64)}",
         "line 2: not a feature"),
        ("d = {'a': tf.io.FixedLenFeature([], tf.int32)}", "line 1: invalid dtype for 'a'"),
        ("d = {'a': tf.io.FixedLenFeature([], DTYPE())}", "line 1: invalid dtype for 'a'"),
        ("d = {'a': tf.io.FixedLenFeature([None], tf.int64)}", "line 1: unsupported value"),
        ("d = {'a': tf.io.FixedLenFeature([-1], tf.int64)}", "line 1: invalid shape for 'a'"),
        ("d = {'a': tf.io.FixedLenFeature(\n[*SIZE, 3], tf.int64)}", "line 2: unsupported value"),
        (f"d = {{'a': tf.io.FixedLenFeature([{'9' * 99}], tf.int64)}}", "unsupported value"),
        ("d = {'a': tf.io.FixedLenFeature([2], tf.int64, 0)}", "a single default for several"),
        ("d = {'a': tf.io.FixedLenFeature([], tf.int64, True)}", "invalid default for 'a'"),
        ("d = {'a': tf.io.FixedLenFeature([], tf.int64, size=3)}", "line 1: invalid arguments"),
        ("d = {'a': tf.io.FixedLenFeature(dtype=tf.int64)}", "FixedLenFeature without shape"),
        ("d = {'a': tf.io.FixedLenFeature([], tf.int64), 'b': tf.io.FixedLenSequenceFeature([], "
         "tf.int64)}", "expected the shape [] and allow_missing=True"),
        ("d = {'a': tf.io.FixedLenSequenceFeature([], tf.int64, flag)}", "invalid allow_missing"),
        ("d = {'a': tf.io.FixedLenFeature([], tf.int64), 'a': tf.io.VarLenFeature(tf.int64)}",
         "line 1: a feature is described twice"),
        ("d = {'a': tf.io.VarLenFeature(tf.int64)}\n\nd = {'b': tf.io.VarLenFeature(tf.int64)}",
         "several feature descriptions, in lines 1 and 3"),
        ("sequence_features = {'a': tf.io.FixedLenFeature([], tf.int64)}",
         "unsupported FixedLenFeature in a description of feature lists"),
        ("%matplotlib inline", "line 1: invalid Python: invalid syntax"),
        ("d = " + "(" * 5000, "invalid Python: too"),
        ("d = " + "-" * 100_000 + "1", "invalid Python: too deeply nested"),
        ("d = \0", "invalid Python: "),
    ],
)  # fmt: skip
def test_other_source_is_refused(source: str, problem: str) -> None:
    """Whatever is not a literal description is an error, with its line."""
    with pytest.raises(SchemaError) as caught:
        parse_source(source.encode())
    assert problem in str(caught.value)


def test_source_on_the_command_line(make_shard: MakeShard, tmp_path: Path, capsys: Capture) -> None:
    """--description takes Python source; errors name the file, and sizes are bounded."""
    file, shard = tmp_path / "parse.py", make_shard([CAT])
    file.write_text(COURSE)
    code, (report,) = run_json(capsys, shard, "--description", file)
    assert (code, report["sample"][0]["features"]["label"]) == (0, 0)
    file.write_text("d = {'label': tf.io.FixedLenFeature([2], tf.int64)}")
    code, (report,) = run_json(capsys, shard, "--description", file)
    assert (code, [fault["kind"] for fault in report["faults"]]) == (3, ["parse"])
    file.write_text("d = {\n'label': 1}")
    assert f"{file}: line 2: not a feature" in failure(capsys, 2, shard, "--description", file)
    file.write_bytes(b"\xff")
    assert "not UTF-8" in failure(capsys, 2, shard, "--description", file)
    file.write_text(COURSE + "#" * 300_000)
    assert "larger than 262,144 bytes" in failure(capsys, 2, shard, "--description", file)
