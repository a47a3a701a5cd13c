"""Objects in records as files of CVAT."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from typing import Any

from tfrtool.examples.objects.annotation import CVAT_USUAL, ImageAnnotation, ObjectAnnotation
from tfrtool.inspection.extract.annotations import (
    AnnotatedImage,
    AnnotatedImages,
    joined,
    plain_number,
    text_of,
    xml,
)
from tfrtool.inspection.extract.extract_files import NewFiles
from tfrtool.storage.limits import MAX_IMAGE_PIXELS
from tfrtool.storage.remote_path import AnyPath

_BOX = ("xtl", "ytl", "xbr", "ybr")
_QUOTES = ('"', "\n", "\t")


class CvatFiles(AnnotatedImages):
    """CVAT for images 1.1: an XML file, and the folder ``images``."""

    kind = "cvat"
    holds = frozenset(("segmentation", "keypoints", "attributes", "masks"))

    def __init__(self, files: NewFiles, shards: Sequence[AnyPath]) -> None:
        """Begin without images."""
        super().__init__(files, shards)
        self._file = files.add(("annotations.xml",), b"")
        self._texts = list[str]()  # as XML: labels come before them
        self._attributes = defaultdict[str, dict[str, None]](dict)  # of classes
        self._points = dict[str, Sequence[str]]()  # of classes with skeletons

    def write(self, image: AnnotatedImage) -> list[str]:
        """Write an image, and keep its objects."""
        parts, parsed = image.parts, image.parsed
        parts = parts if parts[0] == "images" and len(parts) > 1 else ("images", *parts)
        file = self.files.add(parts, image.data)
        sides: dict[str, Any] = {"width": parsed.width, "height": parsed.height}
        subset = {"subset": image.split} if image.split else {}
        name = file.removeprefix("images/")
        head = _tag("image", {"id": len(self._texts), "name": name} | subset | sides)
        lines = [head]
        for annotation, label, outline, attributes in image.each():
            cvat_attributes = {
                name: attributes[name]
                for name, usual in CVAT_USUAL.items()
                if type(attributes.get(name)) is type(usual)
            }
            others = {name: v for name, v in attributes.items() if name not in cvat_attributes}
            self._attributes[label].update(dict.fromkeys(others))
            kind, geometry, inner = self._shape(annotation, label, outline, parsed)
            named = (
                f"{_tag('attribute', {'name': name})}{xml(text_of(v))}</attribute>"
                for name, v in others.items()
            )
            start = _tag(kind, {"label": label, **CVAT_USUAL, **cvat_attributes, **geometry})
            lines.append("".join((start, *inner, *named, f"</{kind}>")))
        self._texts.append("\n".join((*lines, "</image>\n")))
        return [file]

    def _shape(
        self, annotation: ObjectAnnotation, label: str, outline: Any, image: ImageAnnotation
    ) -> tuple[str, Mapping[str, Any], Sequence[str]]:
        """Return the tag of an object, where it is, and the elements in it."""
        points = [
            annotation.keypoints[at : at + 3] for at in range(0, len(annotation.keypoints), 3)
        ]
        if any(seen for *_, seen in points):
            self.lost["outlines"] += outline is not None
            known = self.skeletons.get(label)
            names = [*(known.points if known else ())]
            names += [str(at) for at in range(len(names) + 1, len(points) + 1)]
            if len(names) > len(self._points.get(label, ())):
                self._points[label] = names
            inner = [
                _tag("points", {"label": name, "outside": int(not seen), "occluded": int(seen == 1),
                                "points": f"{plain_number(x)},{plain_number(y)}"}) + "</points>"
                for name, (x, y, seen) in zip(names, points, strict=False)
            ]  # fmt: skip
            return "skeleton", {}, inner
        if isinstance(outline, list) and outline:
            line = [*map(plain_number, joined(outline))]
            pairs = zip(line[::2], line[1::2], strict=True)
            return "polygon", {"points": ";".join(f"{x},{y}" for x, y in pairs)}, ()
        if found := self._mask(annotation, outline, image):
            left, top, bitmap = found
            flat = [0, *bitmap.reshape(-1).tolist()]
            starts = [at for at in range(1, len(flat)) if flat[at] != flat[at - 1]]
            edges = [1, *starts, len(flat)]
            runs = (str(b - a) for a, b in pairwise(edges))
            high, wide = bitmap.shape
            geometry = {"rle": ", ".join(runs), "left": left, "top": top, "width": wide}
            return "mask", geometry | {"height": high}, ()
        return "box", dict(zip(_BOX, map(plain_number, annotation[:4]), strict=True)), ()

    def _mask(
        self, annotation: ObjectAnnotation, outline: Any, image: ImageAnnotation
    ) -> tuple[int, int, Any] | None:
        """Return where the mask of an object is, and its pixels; None if it has none."""
        import numpy as np

        from tfrtool.images.masks import mask_bitmap

        if not isinstance(outline, dict):
            return None
        try:
            if image.width * image.height > MAX_IMAGE_PIXELS:
                raise ValueError
            bitmap = mask_bitmap(json.dumps(outline), image.width, image.height)
        except ValueError:
            self.lost["outlines"] += 1
            return None
        xs, ys = ([*np.flatnonzero(bitmap.any(axis)).tolist()] for axis in (0, 1))
        left, top = min([math.floor(annotation.xmin), *xs]), min([math.floor(annotation.ymin), *ys])
        right = max([math.ceil(annotation.xmax) - 1, *xs])
        low = max([math.ceil(annotation.ymax) - 1, *ys])
        return left, top, bitmap[top : low + 1, left : right + 1]

    def end(self) -> list[str]:
        """Write the labels, and then the images."""
        parts = ['<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n']
        parts += ["<meta><task><labels>\n"]
        for label in self.classes:
            points, known = self._points.get(label), self.skeletons.get(label)
            kind, more = "any", ""
            if points is not None:
                nodes = zip(count(1), points, strict=False)
                svg = "".join(
                    _tag("circle", {"data-node-id": at, "data-label-name": name}) + "</circle>"
                    for at, name in nodes
                )
                for a, b in known.lines if known else ():
                    svg += _tag("line", {"data-node-from": a, "data-node-to": b}) + "</line>"
                kind, more = "skeleton", f"<svg>{xml(svg)}</svg>"
            attributes = "".join(
                f"<attribute><name>{xml(name)}</name><mutable>False</mutable>"
                "<input_type>text</input_type></attribute>"
                for name in self._attributes[label]
            )
            parts += [f"<label><name>{xml(label)}</name><type>{kind}</type>{more}"]
            parts += [f"<attributes>{attributes}</attributes></label>\n"]
            for name in points or ():
                parts += [f"<label><name>{xml(name)}</name><type>points</type>"]
                parts += [f"<parent>{xml(label)}</parent></label>\n"]
        text = "".join((*parts, "</labels></task></meta>\n", *self._texts, "</annotations>\n"))
        self.files.append(self._file, text.encode())
        return [self._file]


def _tag(name: str, attributes: Mapping[str, Any]) -> str:
    """Return the start of an element; true and false are 1 and 0."""
    values = {key: int(v) if isinstance(v, bool) else v for key, v in attributes.items()}
    pairs = (f'{key}="{xml(text_of(v), *_QUOTES)}"' for key, v in values.items())
    return f"<{name} {' '.join(pairs)}>"
