"""Annotation files with random damage: every object is kept or listed, or the file is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.annotated_sets import SCENES, scenes, write_box_csv, write_coco, write_voc, write_yolo
from tests.sources.annotations.told import open_annotated
from tfrtool.errors import TfrtoolError

_PIECES = (
    *(b"", b"\n", b" ", b",", b'"', b";", b"-", b"-1", b"nan", b"NaN", b"1e999", b"9" * 19, b"\0"),
    *(b"\xff", b"../", b"null", b"[]", b"{}", b"\\ud800", b"[", b"{", b"&a ", b"*a", b": "),
    *(b"<object>", b"</object>", b"<bndbox/>", b"<name>", b"&amp;"),
)
_DAMAGE = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 12),
        st.one_of(st.sampled_from(_PIECES), st.binary(max_size=3)),
    ),
    min_size=1,
    max_size=5,
)
_KINDS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "coco": (lambda folder: write_coco(folder / "a.json"), "a.json", ""),
    "csv": (lambda folder: write_box_csv(folder / "a.csv"), "a.csv", ""),
    "voc": (write_voc, "", "Annotations/b 50%.xml"),
    "yolo": (write_yolo, "", "data.yaml"),
    "yolo ": (write_yolo, "", "labels/train/b 50%.txt"),
}


@pytest.mark.parametrize("kind", _KINDS)
@given(damage=_DAMAGE)
def test_damage_loses_nothing(
    kind: str, tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[float, int, bytes]]
) -> None:
    """What is read is kept or listed, or an error names the file."""
    folder = tmp_path_factory.getbasetemp() / kind
    write, place, damaged = _KINDS[kind]
    images = {"voc": folder / "JPEGImages", "yolo": folder / "images/train"}
    if not folder.exists():
        scenes(images.get(kind.strip(), folder / "images"), SCENES[:3])
    write(folder)
    path = folder / (damaged or place)
    data = bytearray(path.read_bytes())
    for share, length, piece in damage:
        at = int(share * len(data))
        data[at : at + length] = piece
    path.write_bytes(data)
    with contextlib.suppress(TfrtoolError):  # each object is accounted for, as it checks
        open_annotated(folder, f"{kind.strip()}:{folder / place}")
