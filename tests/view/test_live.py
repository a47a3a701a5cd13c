"""What the viewer answers, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.datasets import image_payload, write_foreign
from tfrtool.view.live import Live


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Return a viewer of two shards that is done."""
    folder = write_foreign(tmp_path / "two", [[image_payload(n % 2) for n in range(20)]] * 2)
    made = Live(folder, workers=1)
    made.found.fill(workers=1)
    yield made
    made.close()


def test_the_json_behind_the_page_is_what_commands_print(
    live: Live, run: Callable[..., tuple[int, str, str]]
) -> None:
    """Nothing is computed in another way for the page."""
    folder = live.found.paths[0].parent
    for words in (["inspect", "dataset"], ["inspect", "schema"], ["inspect", "stats"]):
        _, text, _ = run(*words, folder, "--json")
        assert live.printed("-".join(words)) == [json.loads(text)]
    _, text, _ = run("verify", folder, "--images", "--json")
    assert live.printed("verify") == [json.loads(line) for line in text.splitlines()]
    with pytest.raises(IndexError):
        live.printed("rm")
