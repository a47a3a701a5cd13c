"""Where a user's marks and tokens are stored."""

import os
import sys
from pathlib import Path


def user_folder(variable: str, default: str, name: str) -> Path:
    """Return tfrtool's folder in the user's data.

    Args:
        variable: the environment variable of the XDG specification that names the folder above it.
        default: that folder without this variable, below the home folder.
        name: the folder's own name.
    """
    home = Path.home()
    if sys.platform == "win32":
        above = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        above = home / "Library" / "Application Support"
    else:
        above = Path(os.environ.get(variable) or home / default)
    return above / "tfrtool" / name
