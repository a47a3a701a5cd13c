"""KITTI and DOTA: a text file per image, with an object in each line."""

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from tfrtool.sources.annotations.annotation_reader import ParsedImage, ParsedObject, numbers_of
from tfrtool.sources.annotations.image_files import ImageFilesReader

_LABELS = re.compile(r"(?<![^/])label(?:s?|Txt)([_-][^/]*)?(?=/)", re.IGNORECASE)
"""Folders of labels: KITTI's ``label_2``, DOTA's ``labelTxt-v1.0``, ``labels``."""

_NOT_LABELS = re.compile(r"(?:.*/)?(?:calib|ImageSets|velodyne|oxts|planes)/.*")
_KITTI = (15, 16)
"""Columns, without and with a score."""

_DIFFICULT = {"": False, "0": False, "1": True}


class _TextReader(ImageFilesReader):
    suffix = ".txt"

    def files(self, keys: Sequence[str]) -> Sequence[str]:
        """Return the files in folders of labels, or else all but those known as others."""
        labels = [key for key in keys if _LABELS.search(key)]
        return labels or [key for key in keys if not _NOT_LABELS.fullmatch(key)]

    def parse(self, key: str, data: bytes) -> Iterator[ParsedImage]:
        """Yield the image of a file."""
        name = self.image_stem(key)
        image = ParsedImage(self._folder.name(name), key, other_name=name.rpartition("/")[2])
        try:
            lines = enumerate(data.decode("utf-8-sig").split("\n"), start=1)
        except UnicodeDecodeError:
            yield image._replace(problem="not valid UTF-8")
            return
        rows = ((f"{key}, line {number}", line.split()) for number, line in lines)
        objects = [self.parse_line(where, cells) for where, cells in rows if cells]
        yield image._replace(objects=[one for one in objects if one is not None])

    @abstractmethod
    def parse_line(self, where: str, cells: list[str]) -> ParsedObject | None:
        """Return the object of a line; None if it has none."""


class KittiReader(_TextReader):
    """Reads KITTI's labels: class, truncated, occluded, angle, box, and what is in 3D."""

    expected = "label_2/*.txt"

    def image_stem(self, key: str) -> str:
        """Return the path of an image, in ``image_2`` for ``label_2``."""
        stem = key[: -len(self.suffix)]
        return _LABELS.sub(lambda m: f"image{m[1] or 's'}", stem)

    def parse_line(self, where: str, cells: list[str]) -> ParsedObject | None:
        """Return the object of a line; regions that don't count are only noted."""
        words = next((at for at, one in enumerate(cells[1:], 1) if numbers_of([one])), 1)
        cells = [" ".join(cells[:words]), *cells[words:]]
        if cells[0] == "DontCare":
            self._unread["DontCare regions"] += 1
            return None
        if len(cells) not in _KITTI:
            return self.parsed(where, cells[0], None, f"{len(cells)} columns, not 15 or 16")
        numbers = numbers_of(cells[1:])
        if numbers is None:
            return self.parsed(where, cells[0], None, "a column is not a number")
        attributes = dict[str, Any](zip(("truncated", "occluded", "alpha"), numbers, strict=False))
        attributes |= {"dimensions": numbers[7:10], "location": numbers[10:13]}
        attributes |= zip(("rotation_y", "score"), numbers[13:], strict=False)
        flag = numbers[0] > 0
        return self.parsed(where, cells[0], numbers[3:7], attributes=attributes, truncated=flag)


class DotaReader(_TextReader):
    """Reads DOTA's labels: four corners, class and difficulty, after lines about the image."""

    expected = "labelTxt/*.txt"

    def image_stem(self, key: str) -> str:
        """Return the path of an image, in ``images`` for ``labelTxt``."""
        return _LABELS.sub("images", key[: -len(self.suffix)])

    def parse_line(self, where: str, cells: list[str]) -> ParsedObject | None:
        """Return the object of a line."""
        if ":" in cells[0]:  # imagesource:GoogleEarth, gsd:0.14
            return None
        corners, (*names, last) = numbers_of(cells[:8]), cells[8:] or [""]
        if corners is None or len(corners) < 8:
            return self.parsed(where, last, None, "line does not start with four corners")
        if not names:
            names, last = [last], ""
        attributes = {} if last in _DIFFICULT else {"difficult": last}
        return self.outlined(
            where,
            " ".join(names),
            [corners],
            attributes=attributes,
            difficult=_DIFFICULT.get(last, last == "2"),
        )
