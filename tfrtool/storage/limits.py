"""The limits of what is read: everything that comes out of a file is untrusted.

Every path that decodes or unpacks takes its limits from here. What is over a limit is an error
that names the limit and the number that was found.
"""

from __future__ import annotations

__all__ = [
    "MAX_ENTRIES_WALKED",
    "MAX_FILES_LOOKED_INTO",
    "MAX_IMAGE_BYTES",
    "MAX_METADATA_BYTES",
]

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
