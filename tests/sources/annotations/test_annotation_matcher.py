"""Images and annotations that are brought together, by a reader that the test makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from PIL import Image

from tfrtool.errors import SourceError
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation, ObjectAnnotation
from tfrtool.examples.objects.record_features import WrittenImage
from tfrtool.sources.annotations.annotation_matcher import match_annotations
from tfrtool.sources.annotations.annotation_reader import (
    AnnotationReader,
    ParsedImage,
    ParsedObject,
)
from tfrtool.sources.folders.listing import list_directory
from tfrtool.sources.items import LeftOut
from tfrtool.sources.source_options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tfrtool.sources.items import Source


class _Reader(AnnotationReader):
    def __init__(self, *images: ParsedImage) -> None:
        super().__init__()
        self._images = images

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        yield from self._images
        yield LeftOut(key="image 9", reason="annotation 9: lost")

    def classes(self) -> Mapping[str, int]:
        return {"cat": 3, "dog": 7}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of three images, one of them deeper."""
    images = tmp_path / "images"
    (images / "deep").mkdir(parents=True)
    for name in ("a.jpg", "b.jpg", "deep/c.jpg"):
        Image.new("RGB", (100, 50), "gray").save(images / name)
    return images


def _source(folder: Path, *images: ParsedImage) -> Source:
    options = SourceOptions(annotations="coco:x")
    reader = _Reader(*images)
    return match_annotations(list_directory(str(folder)), reader, options, "here", folder.parent)


def _object(*box: float, category: str = "cat", **more: object) -> ParsedObject:
    return ParsedObject(
        where="annotation 1",
        box=cast("tuple[float, float, float, float]", box),
        category=category,
        fields=more,
    )


def _annotations(source: Source) -> list[ImageAnnotation | None]:
    return [ExtraFeatures.unpack(item.extra).annotation for item in source.items]


def test_objects_come_with_their_images(folder: Path) -> None:
    """Objects come with the images that they are told for, those without any included."""
    source = _source(
        folder,
        ParsedImage(name="c.jpg", where="image 2", width=100, height=50, source_id="2"),
        ParsedImage(
            name="a.jpg",
            where="image 1",
            width=100,
            height=50,
            objects=[_object(1, 2, 3, 4, category="dog", area=5.0)],
        ),
    )
    assert [item.key for item in source.items] == ["a.jpg", "deep/c.jpg"]
    assert source.labels == ("cat", "dog")
    assert source.features.class_ids == (3, 7)
    assert source.features.optional == ("area",)
    first, second = _annotations(source)
    assert first == ImageAnnotation(100, 50, (ObjectAnnotation(1, 2, 3, 4, 1, area=5.0),))
    assert second == ImageAnnotation(100, 50, (), "2")
    assert [entry.key for entry in source.ignored] == ["b.jpg"]


def test_without_any_image_it_is_an_error(folder: Path) -> None:
    """Annotations of which no image is there say which was looked for."""
    with pytest.raises(SourceError, match=r"gone\.jpg: image 1: no such image"):
        _source(folder, ParsedImage(name="gone.jpg", where="image 1", objects=[]))


def test_objects_have_as_many_key_points(folder: Path) -> None:
    """Those with fewer than others get points of visibility 0."""
    points = [(1, 2, 2), (1, 2, 2, 3, 4, 1), ()]
    objects = [_object(1, 2, 3, 4, keypoints=some) for some in points]
    image = ParsedImage(name="a.jpg", where="image 1", width=100, height=50, objects=objects)
    source = _source(folder, image)
    (annotation,) = _annotations(source)
    made = source.features.values(
        WrittenImage(b"", "jpeg", 50, 100), "a.jpg", "", {}, ExtraFeatures(annotation=annotation)
    )
    assert made["image/object/keypoint/visibility"].values == (2, 0, 2, 1, 0, 0)
    assert made["image/object/keypoint/num"].values == (1, 2, 0)
