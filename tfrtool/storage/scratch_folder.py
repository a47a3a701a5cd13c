"""Private folders for temporary files."""

import tempfile
from functools import partial

ScratchFolder = partial(tempfile.TemporaryDirectory[str], prefix="tfrtool-")
"""Makes a private folder among the system's temporary files, which is deleted at the end."""
