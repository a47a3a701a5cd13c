"""What tells a dataset's readers which files are meant, where none can be renamed.

In a store, a write begins with a claim, an object that only one writer can make. It ends with a
commit: one request puts the last of the metadata. Where there was a dataset already, the new one
lies in a folder of its own in the dataset's, and the commit names that folder.
"""

import contextlib
import re
import secrets
from pathlib import Path

from tfrtool.storage.json_files import read_json
from tfrtool.storage.opening import open_regular

STAGING = ".tfrtool-incomplete"
"""The folder in a dataset's directory that tells of a write which has not ended."""

CLAIM = "claim.json"
"""The object in it that says whose the write is."""

COMMITS = ("dataset_info.json", "write_report.json")
"""What can be a commit: the first where TFDS knows the format, else the second."""

VERSION_FOLDER = re.compile(r"v-[0-9a-f]{16}")
_POINTER = re.compile(rf'"(?:filepathTemplate|folder)": "({VERSION_FOLDER.pattern})[/"]'.encode())
_HEAD = 64 * 1024


def version_folder() -> str:
    """Return a name for a folder that nobody else uses."""
    return f"v-{secrets.token_hex(8)}"


def current_folder(folder: Path) -> Path:
    """Return where the files of a dataset are: its folder, or the one in it that a commit names."""
    for name in COMMITS:
        with contextlib.suppress(OSError), open_regular(folder / name) as file:
            found = _POINTER.search(file.read(_HEAD))
            return folder / found[1].decode() if found else folder
    return folder


def is_claimed(folder: Path) -> bool:
    """Return whether a write has begun in a folder, and there is no dataset to be read yet."""
    said = None
    if VERSION_FOLDER.fullmatch(folder.name) is None:
        try:
            claim = read_json(folder / STAGING / CLAIM)
            said = claim.get("commit") if isinstance(claim, dict) else None
        except OSError:
            return False
        except ValueError:
            pass  # whatever it says, it is there
    return not any((folder / name).is_file() for name in ([said] if said in COMMITS else COMMITS))
