"""Masks of records as pictures for the viewer: encoded images, polygons and run lengths."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.examples.strategies import string
from tests.photos import image_bytes
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.images.overlay import colour_of
from tfrtool.inspection.pictures.objects import mask_of
from tfrtool.inspection.pictures.pictures import ImageRoles

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLES = ImageRoles(image="image")


def _record(**lists: Feature) -> bytes:
    box = Feature(dtype=DType.FLOAT32, values=(0.2, 0.1, 0.6, 0.5))
    held = {f"objects/{name}": one for name, one in lists.items()}
    image = string(image_bytes(size=(40, 30)))
    return encode_example({"image": image, "objects/bbox": box, **held})


def _inside(record: bytes) -> Sequence[int] | None:
    """Return the box around what a record's mask covers."""
    found = mask_of(record, ROLES, 0, 40)
    assert found.image is not None, found.problem
    assert found.image.size == (40, 30)
    colours = found.image.getcolors() or []
    clear = Image.new("RGBA", (1, 1), colour_of(0)).getpixel((0, 0))
    assert {pixel[:3] for _, pixel in colours} == {clear[:3]}  # type: ignore[index]
    return found.image.getchannel("A").getbbox()


def test_a_mask_that_is_an_image_is_shown() -> None:
    """Its own pixels come back."""
    kept, mask = io.BytesIO(), Image.new("L", (40, 30))
    mask.paste(1, (4, 6, 20, 18))
    mask.save(kept, "PNG")
    assert _inside(_record(mask=string(kept.getvalue()))) == (4, 6, 20, 18)


def test_polygons_are_filled() -> None:
    """They are in pixels of the image, whose size the record need not say."""
    outline = b"[[4,6,20,6,20,18,4,18]]"
    assert _inside(_record(segmentation=string(outline))) == pytest.approx((4, 6, 20, 18), abs=1)


def test_run_lengths_are_filled() -> None:
    """They go column by column, and begin with what is no object."""
    lengths = b'{"size":[30,40],"counts":[120,60,1020]}'
    assert _inside(_record(segmentation=string(lengths))) == (4, 0, 6, 30)


@pytest.mark.parametrize("outline", [b"[", b"[[1]]", b'{"size":[1,1]}', b"7"])
def test_what_is_no_outline_covers_nothing(outline: bytes) -> None:
    """Nor does it raise."""
    assert _inside(_record(segmentation=string(outline))) is None


def test_there_is_no_mask_of_another_number() -> None:
    """A page may ask for any."""
    for number in (-1, 1):
        assert mask_of(_record(segmentation=string(b"[[1,1,2,2,3,1]]")), ROLES, number, 40).problem
