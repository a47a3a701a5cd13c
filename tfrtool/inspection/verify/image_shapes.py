"""Whether images have the sizes that features.json says, as TFDS decodes them."""

from collections.abc import Mapping

from tfrtool.examples.fields import Struct, image_sizes, leaves_of
from tfrtool.features.stored_layout import stored_leaf
from tfrtool.images.audit import ImageVerdict
from tfrtool.inspection.verify.feature_faults import Mismatches
from tfrtool.records.framing import Record
from tfrtool.storage.remote_path import AnyPath

_FORMATS: Mapping[int | None, tuple[str, ...]] = {1: ("JPEG", "MPO", "PNG"), 4: ("PNG", "BMP")}
"""Formats that TensorFlow decodes with so many channels, whatever the file has; 3 in any."""


class ImageShapes:
    """Compares images with their shapes.

    Attributes:
        mismatches: how images differ.
    """

    def __init__(self, root: Struct, path: AnyPath) -> None:
        """Begin with the fields of the records of a shard."""
        self._path, self.mismatches = path, Mismatches()
        self._sizes = {
            stored_leaf(leaf).values.key: sizes
            for leaf in leaves_of(root)
            if (sizes := image_sizes(leaf.values))
        }

    def add(self, name: str, image: ImageVerdict, record: Record) -> None:
        """Compare an image of a feature."""
        from tfrtool.features.misfits import FieldMisfit

        sizes = self._sizes.get(name)
        if sizes is None or image.size is None:
            return
        height, width, channels = sizes
        if width not in (None, image.size[0]) or height not in (None, image.size[1]):
            wanted = " x ".join("*" if size is None else str(size) for size in (width, height))
            found = " x ".join(map(str, image.size))
            misfit = FieldMisfit(name, f"{wanted} pixels", found)
            self.mismatches.add(misfit, self._path, record)
        elif image.format not in _FORMATS.get(channels, (image.format,)):
            misfit = FieldMisfit(name, f"{channels} channels", f"{image.format}")
            self.mismatches.add(misfit, self._path, record)
