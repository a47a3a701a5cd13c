"""The limits of what is read: everything that comes out of a file is untrusted.

Every path that decodes or unpacks takes its limits from here. What is over a limit is an error
that names the limit and the number that was found.
"""

from __future__ import annotations

__all__ = ["MAX_METADATA_BYTES"]

MAX_METADATA_BYTES = 64 * 1024 * 1024
"""Of a JSON or text file of metadata. TFDS' largest features.json are below 1 MiB, and a
dataset_info.json with 100,000 shards has 1 MiB."""
