"""Photographs to measure with: seeded, so that every run has the same."""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image

__all__ = ["make_photographs"]


def make_photographs(root: Path, count: int) -> Path:
    """Make JPEGs of the size and detail of photographs of cats and dogs: 22 kB, 450 x 374.

    Args:
        root: where the two class folders are made.
        count: how many photographs, of both classes together.

    Returns:
        ``root``.
    """
    noise = random.Random(0)
    for number in range(count):
        folder = root / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        rough = Image.frombytes("RGB", (90, 75), noise.randbytes(90 * 75 * 3))
        smooth = rough.resize((12, 10)).resize((450, 374), Image.Resampling.BICUBIC)
        image = Image.blend(smooth, rough.resize((450, 374), Image.Resampling.BILINEAR), 0.18)
        image.save(folder / f"{number}.jpg", quality=88)
    return root
