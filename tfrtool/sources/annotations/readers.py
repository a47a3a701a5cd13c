"""Which reader takes what ``--annotations`` names."""

from pathlib import Path

from tfrtool.errors import UsageError
from tfrtool.sources.annotations.found import AnnotationReader
from tfrtool.sources.source_options import SourceOptions


def open_annotations(
    options: SourceOptions, images: Path | None, scratch: Path
) -> AnnotationReader:
    """Return what reads annotations; their files are opened when images are asked for.

    Args:
        options: which say kind and place.
        images: the folder of images, where it is one.
        scratch: a folder for what is too much for memory.
    """
    kind, _, place = (options.annotations or "").partition(":")
    path = Path(place)
    del images, scratch  # which some of the kinds need
    raise UsageError(f"{kind} can't be read yet", path=path)
