"""Sources with annotations, as tests look at them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.annotated_sets import Scene
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

__all__ = ["boxes", "listed", "lost", "objects_of", "open_annotated", "truth"]

Boxes = dict[str, list[tuple[object, ...]]]


def open_annotated(
    images: Path | str,
    said: str,
    scratch: Path | None = None,
    *,
    root: Path | None = None,
    **options: Any,
) -> Source:
    """Open images with annotations; every annotation is kept or listed."""
    meant = SourceOptions(annotations=said, **options)
    scratch = scratch or Path(images).parent
    source = open_source(str(images), LabelFrom.FOLDER, scratch, root, options=meant)
    account = source.annotations
    assert account is not None
    kept = sum(len(one.objects) for one in objects_of(source).values())
    assert kept + len(account.rejected) == account.read
    return source


def objects_of(source: Source) -> dict[str, ImageAnnotation]:
    """Return what is told of each image."""
    found = {}
    for item in source.items:
        packed = item.extra
        annotation = ExtraFeatures.unpack(packed).annotation
        assert annotation is not None
        found[item.key] = annotation
    return found


def boxes(source: Source) -> Boxes:
    """Return classes and boxes of the objects of each image, to a hundredth of a pixel."""
    return {
        key: [(source.labels[one.label], *(round(v, 2) for v in one[:4])) for one in told.objects]
        for key, told in objects_of(source).items()
    }


def truth(scenes: Iterable[Scene], prefix: str = "") -> Boxes:
    """Return the same of scenes."""
    return {prefix + scene.name: [tuple(thing) for thing in scene.things] for scene in scenes}


def lost(source: Source) -> list[tuple[str, str]]:
    """Return the objects that are left out: their images' keys, and why."""
    assert source.annotations is not None
    return [(entry.key, entry.reason) for entry in source.annotations.rejected]


def listed(source: Source) -> dict[str, str]:
    """Return the images that are left out, and why."""
    return {entry.key: entry.reason for entry in source.rejected}
