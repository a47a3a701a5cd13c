"""Private folders for temporary files."""

import tempfile
from pathlib import Path


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A private folder, which is deleted at the end."""

    def __init__(self, parent: Path | None = None, prefix: str = "tfrtool-") -> None:
        """Make a folder; `OSError` if that is impossible.

        Args:
            parent: where; None makes it among the system's temporary files.
            prefix: the start of its name.
        """
        super().__init__(prefix=prefix, dir=parent)
