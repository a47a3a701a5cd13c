"""What the viewer answers, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.datasets import image_payload, write_foreign
from tests.view.asking import ask
from tfrtool.errors import ShardError, TfrtoolError, UsageError
from tfrtool.view.live import Live
from tfrtool.view.server import application

QUESTION: dict[str, Any] = {
    "where": None, "text": None, "equal": {}, "sort": None, "descending": False
}  # fmt: skip
ENDLESS = {**QUESTION, "where": "(SELECT count(*) FROM range(1000000000000)) > label"}


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


def total(live: Live, **question: Any) -> int:
    """Return how many rows match a question."""
    found: int = live.rows({**QUESTION, **question}, 0, 5)["total"]
    return found


def test_a_question_that_takes_too_long(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, and the next one is answered; so after one that needs too much memory."""
    monkeypatch.setattr("tfrtool.view.live.MAX_SECONDS", 0.2)
    with pytest.raises(UsageError, match="longer than 0 seconds"):
        live.rows(ENDLESS, 0, 5)
    monkeypatch.undo()
    assert total(live, where="label = 0") == 20
    with pytest.raises(ShardError, match=r"2\.0 GiB of memory"):
        total(live, where="len(range(800000000)) > label")
    with pytest.raises(ShardError, match="converted to INTEGER"):
        total(live, where="CAST(_shard AS INT) > label")
    assert total(live, where="label = 1") == 20


def test_questions_do_not_wait_for_each_other(live: Live) -> None:
    """While one is not answered, others are; it ends with the viewer."""
    with ThreadPoolExecutor(2) as threads:
        slow = [threads.submit(live.rows, ENDLESS, start, 5) for start in (0, 5)]
        assert total(live, where="label = 1") == 20
        assert total(live, text="nowhere") == 0
        assert not any(one.done() for one in slow)
        live.interrupt()
        for one in slow:
            assert isinstance(one.exception(), TfrtoolError)
    with pytest.raises(UsageError, match="viewer has stopped"):
        total(live, where="label = 2")


@pytest.fixture
def pets(tmp_path: Path) -> Iterator[Live]:
    """Return a viewer of two splits with class names, which is done."""
    folder = write_foreign(tmp_path / "pets", [[image_payload(n % 2) for n in range(20)]])
    (path,) = folder.iterdir()
    for split in ("train", "test"):
        path.with_name(f"pets-{split}.tfrecord-00000-of-00001").write_bytes(path.read_bytes())
    path.unlink()
    folder.joinpath("label.labels.txt").write_text("cat\nit's a dog\n")
    made = Live(folder, workers=1)
    made.found.fill(workers=1)
    yield made
    made.close()


def test_names_mean_what_they_mean_in_the_terminal(
    pets: Live, run: Callable[..., tuple[int, str, str]]
) -> None:
    """Conditions find the same rows as ``cat --where`` and ``query``."""
    folder = pets.found.paths[0].parent
    for where, count in {
        "label = 0": 20,
        "label_name = 'cat'": 20,
        "_split = 'train' AND label_name <> 'cat'": 10,
        "_record < 3 AND _shard LIKE '%-test.tfrecord%'": 3,
        "label_name IS NULL": 0,
    }.items():
        assert total(pets, where=where) == count
        _, out, _ = run("cat", folder, "--where", where, "--json")
        assert len(out.splitlines()) == count
        sql = f"SELECT count(*) AS n FROM records WHERE {where}"
        assert run("query", folder, sql, "--json")[1] == f'{{"n": {count}}}\n'


def test_what_the_page_suggests_works(pets: Live, live: Live) -> None:
    """So do the command that it shows, and everything that it offers to select by."""
    assert pets.found.example_condition == "label_name = 'cat' AND width < 200"
    assert total(pets, where=pets.found.example_condition) == 20
    assert total(live, where=live.found.example_condition) == 40
    state = pets.state()
    for name in state["columns"]:
        assert total(pets, sort=name) == 40
    assert [total(pets, equal={"split": name}) for name in state["splits"]] == [20, 20]
    assert [total(pets, equal={"label": name}) for name in state["classes"]] == [20, 20]
    command = pets.rows({**QUESTION, "equal": {"label": "it's a dog"}}, 0, 5)["command"]
    assert "label_name = " in command


@pytest.mark.parametrize(
    "question",
    [
        {"where": 'label IS NULL OR "label" = 1'},
        {"where": "label_name IS NULL OR label = 1"},
        {"where": "COLUMNS(*) IS NOT NULL"},
        {"sort": "label", "label": "cat"},
        {"sort": "label_name", "label": "cat", "split": "train", "text": "a"},
        {"where": "labell = 1"},
        {"where": "label = 'x'"},
    ],
)
def test_no_question_is_an_error_of_the_server(pets: Live, question: dict[str, str]) -> None:
    """It is answered, or refused with a reason."""
    answer = ask(application(pets), "/api/rows", urlencode(question))
    assert answer.status in (200, 400)
    if answer.status == 400:
        assert json.loads(answer.body)["error"]


def test_names_that_a_list_cannot_hold(tmp_path: Path) -> None:
    """A list has one record per line, so a name with a line break is refused, with advice."""
    folder = write_foreign(tmp_path / "two", [[image_payload(0)]])
    (path,) = folder.iterdir()
    path.rename(folder / "line\nbreak.tfrecord")
    made = Live(folder, workers=1)
    made.found.fill(workers=1)
    with pytest.raises(UsageError) as caught:
        made.marked([0])
    made.close()
    assert "rename" in str(caught.value)
