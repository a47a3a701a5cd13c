"""Private folders for temporary files."""

import tempfile


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A private folder among the system's temporary files, which is deleted at the end."""

    def __init__(self) -> None:
        """Make a folder; `OSError` if that is impossible."""
        super().__init__(prefix="tfrtool-")
