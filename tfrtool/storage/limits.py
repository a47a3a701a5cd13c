"""The limits of what is read: everything that comes out of a file is untrusted.

Every path that decodes or unpacks takes its limits from here. What is over a limit is an error
that names the limit and the number that was found.
"""

from __future__ import annotations

__all__ = [
    "FREE_UNPACKED_BYTES",
    "MAX_ARCHIVE_HEADER_BYTES",
    "MAX_DEFLATE_RATIO",
    "MAX_ENTRIES_WALKED",
    "MAX_FILES_LOOKED_INTO",
    "MAX_IMAGE_BYTES",
    "MAX_METADATA_BYTES",
    "MAX_STREAM_COPY",
    "MAX_UNPACKED_RATIO",
    "unpacked_limit",
]

MAX_ARCHIVE_HEADER_BYTES = 16 * 1024
"""Of an extended header of a tar archive: a path and a link's target have 4,096 bytes each at most,
and as much again is left for times and attributes."""

FREE_UNPACKED_BYTES = 1024**3
"""What an archive may unpack to however small it is: no disk and no hour is lost by that."""

MAX_UNPACKED_RATIO = 100
"""Of the bytes that an archive's images unpack to and the archive's own. Photographs hardly shrink,
and bitmaps of drawings to a tenth; a hundredth is what bombs are made of."""

MAX_DEFLATE_RATIO = 1100
"""Of all bytes that a compressed archive unpacks to, those that nobody keeps included, and its own.
Deflate reaches 1,032 with zeros; bzip2 and LZMA a thousand times that, and take hours."""

MAX_ENTRIES_WALKED = 10_000
"""Of a directory without shards, the files and folders below it among which some are looked for,
to say where they are: a tenth of a second."""

MAX_FILES_LOOKED_INTO = 1000
"""Of one directory, files whose names don't tell whether they are shards, and whose first 4 KiB do.
One file stands for all of its writer's, so that this is the number of different writers."""

MAX_IMAGE_BYTES = 512 * 1024 * 1024
"""Of one encoded image, wherever it comes from. The most pixels that are decoded (89,478,485, as in
Pillow) take 256 MiB as a plain bitmap in RGB, 512 MiB with 16 bits a channel; a file that is larger
than that is no photograph, but would be held in memory whole."""

MAX_METADATA_BYTES = 64 * 1024 * 1024
"""Of a JSON or text file of metadata. TFDS' largest features.json are below 1 MiB, and a
dataset_info.json with 100,000 shards has 1 MiB."""

MAX_STREAM_COPY = 256 * 1024 * 1024
"""Of a stream, what is also written to a temporary file, to tell the cause of a fault from the
bytes around it: twice a shard of the usual size. A stream need not end, and the file may be in
memory."""


def unpacked_limit(packed: int, ratio: int = MAX_UNPACKED_RATIO) -> int:
    """Return how many bytes may come out of an archive of ``packed`` bytes."""
    return max(FREE_UNPACKED_BYTES, ratio * packed)
