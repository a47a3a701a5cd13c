"""Fuzzing the viewer's questions: conditions, text, equal values and orders in an address."""

from __future__ import annotations

import atexit
import random
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from tests.datasets import image_payload
from tests.fuzz.target import Scramble, Target, scratch
from tests.records.strategies import shard_of
from tests.view.asking import ask
from tfrtool.view import live
from tfrtool.view.server import application

__all__ = ["TARGET"]

_KEYS = ("where", "was", "text", "split", "label", "sort", "descending", "page", "shard", "size",
         "fault", "copies", "like", "marked", "thumb", "view", "all", "tag", "tagged", "prediction",
         "predicted", "confidence", "is:label", "null:label", "in:label",
         "bytes:label_name")  # fmt: skip
_RECORDS = 12

_WHERE = (
    "label = 0", "label_name = 'cat' AND width < 200", "_split = 'train'", "_record % 2 = 1",
    'label IS NULL OR "label" = 1', "COLUMNS(*) IS NOT NULL", "label_name IS NULL OR label = 1",
    "image LIKE '%x%'", "CAST(_shard AS INT) = 1", "len(range(label * 3)) > 2", "[label][2] = 1",
    "label = 1) OR (1 = 1", "label = 1 -- x", "label = 1 /*", "; DROP TABLE records", "'", '"',
    "label IN (SELECT range FROM range(5))", "random() < 0.5", "count(*) > 1", "NULL", "",
    "EXISTS (FROM read_text('/etc/passwd'))", "getenv('HOME') = 'x'", "repeat('a', 9999) = 'b'",
    "(WITH a AS (COPY (SELECT 1) TO '/tmp/x') SELECT 1) = 1", "len(range(800000000)) > label",
    "sleep_ms(100000) IS NULL", "{'a': label}.a = 1", "label::HUGEINT ** 99 > 0", "$1 = label",
    "x -> x + 1", "(SELECT count(*) FROM range(100000000000)) > label", "label = 1e999",
    "struct_pack(label_name := 1) IS NULL", "DATE 'infinity' > label", "(" * 200 + ")" * 200,
)  # fmt: skip
_OTHER = (
    ("sort", "label"), ("sort", "label_name"), ("sort", "_row"), ("sort", "nothing"),
    ("sort", "label DESC; SELECT 1"), ("split", "train"), ("split", "all"), ("split", "'"),
    ("label", "cat"), ("label", "it's"), ("label", "\0"), ("text", "CAT"), ("text", "%_'\\"),
    ("descending", "1"), ("page", "-1"), ("page", "9" * 30), ("size", "0"),
    ("like", "pets-train.tfrecord-00000-of-00001:1"),
    ("copies", "any"), ("shard", "99"), ("fault", "parse"), ("view", "table"), ("all", "label"),
    ("is:label", "1"), ("is:nothing", "'"), ("null:label", "1"), ("in:label", "[0,1)"),
    ("in:label", "[-1e999,1e999]"), ("in:label", "nan"), ("bytes:label_name", "[2,9]"),
    ("tag", "\u00e4"), ("tag", "../x"), ("tagged", "it's"), ("prediction", "wrong"),
    ("predicted", "cat"), ("confidence", "3"),
)  # fmt: skip


@cache
def _application() -> tuple[live.Live, Any]:
    """Return a viewer of two splits with class names, which has read all of them."""
    folder = scratch() / "viewed"
    folder.mkdir()
    for split in ("train", "test"):
        payloads = [image_payload(n % 2) for n in range(_RECORDS // 2)]
        path = folder / f"pets-{split}.tfrecord-00000-of-00001"
        path.write_bytes(shard_of([*payloads[1:], b"not an Example"]))
    folder.joinpath("label.labels.txt").write_text("cat\nit's\n")
    viewer = live.Live(folder, workers=1)
    atexit.register(viewer.close)
    viewer.found.fill(workers=1)
    viewer.done = True
    return viewer, application(viewer)


def seeds() -> Iterator[bytes]:
    """Yield addresses that ask for something, or try to reach out of the records."""
    for where in _WHERE:
        yield urlencode({"where": where}).encode()
    for name, value in _OTHER:
        yield urlencode({"where": "label = 1", name: value}).encode()
    yield b"where=%ff%fe&text=%00&sort=%&label=%u1234&where=a&where=b&=&&"


def check(data: bytes) -> None:
    """Each question is answered by a page, or by one that says why not; none is an accident."""
    _, app = _application()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "MAX_SECONDS", 2.0)  # an input may ask for a query that sleeps
        answer = ask(app, "/", data.decode("latin-1"))
    page = answer.body.decode()
    assert answer.status in (200, 400), answer
    assert answer.status == 200 or 'role="alert"' in page
    assert page.count('name="seen"') <= _RECORDS
    # On a busy machine this takes seconds, too: it has the time that a viewer's users have.
    assert ask(app, "/").body.decode().count('name="seen"') == _RECORDS


def mutate(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change a value, or put in another one, or a part of another."""
    if rng.randrange(8) == 0:
        return scramble(data)
    asked = parse_qsl(data.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    asked = asked or [("where", "label = 1")]
    at = rng.randrange(len(asked))
    name, value = asked[at]
    match rng.randrange(5):
        case 0:
            value = scramble(value.encode("latin-1", "replace")).decode("latin-1")
        case 1:
            value = f"({value}) {rng.choice(('AND', 'OR', '=', '||'))} ({rng.choice(_WHERE[:20])})"
        case 2:
            words = value.split(" ")
            words[rng.randrange(len(words))] = rng.choice(rng.choice(_WHERE).split(" "))
            value = " ".join(words)
        case 3:
            name = rng.choice(_KEYS)
        case 4:
            asked.append(rng.choice(_OTHER))
    asked[at] = name, value
    return urlencode(asked, encoding="latin-1", errors="replace").encode()


# Python, Arrow and the server; DuckDB has a process of its own.
TARGET = Target(check=check, seeds=seeds, mutate=mutate, max_length=2048, memory=1024)
