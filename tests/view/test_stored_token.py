"""The token of a viewer with a port: the same after a restart, and nobody else's."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from tfrtool.errors import WriteError
from tfrtool.view.stored_token import TOKEN_DAYS, stored_token, tokens_folder


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tokens in the folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _file() -> Path:
    (path,) = tokens_folder().iterdir()
    return path


def test_a_token_stays_for_its_dataset_and_port() -> None:
    """Others have other tokens; only the user can read them."""
    first = stored_token([Path("/data/pets")], 8080)
    assert len(first) == 32
    assert stored_token([Path("/data/pets")], 8080) == first
    assert stat.S_IMODE(_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens_folder().stat().st_mode) == 0o700
    others = [stored_token([Path(f"/data/{name}")], port) for name, port in (("a", 8080), ("b", 1))]
    assert len({first, *others}) == 3


@pytest.mark.parametrize("spoil", ["open", "old", "short", "link", "markup"])
def test_a_token_that_others_may_know_is_replaced(spoil: str, tmp_path: Path) -> None:
    """So is one that is too old, or not a token."""
    first = stored_token([Path("/data")], 1)
    path = _file()
    if spoil == "open":
        path.chmod(0o644)
    elif spoil == "old":
        age = time.time() - TOKEN_DAYS * 86400 - 1
        os.utime(path, (age, age))
    elif spoil == "link":
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    else:
        path.write_bytes({"short": b"", "markup": b"<script>"}[spoil].ljust(8))
    second = stored_token([Path("/data")], 1)
    assert second != first
    assert (_file().read_text(), path.is_symlink()) == (second, False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    """Tokens are not written where another user could put a link."""
    tokens_folder().parent.mkdir(parents=True)
    tokens_folder().symlink_to(tmp_path)
    with pytest.raises(WriteError, match="can't store the token: it is a link"):
        stored_token([Path("/data")], 1)
