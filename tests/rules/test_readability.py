"""Vague names, long functions, and functions with many names may only become fewer."""

from __future__ import annotations

from tests.rules.breaches import expect_none
from tests.rules.readability import (
    MOST_LINES,
    MOST_NAMES,
    PACKAGE,
    VAGUE,
    current_counts,
    hard_to_read,
    raised,
    stored_counts,
)


def test_code_does_not_get_harder_to_read() -> None:
    """No file has more of these than readability.json says."""
    found = []
    for file, text in raised(stored_counts(), current_counts()):
        kind = text.split(",")[0].split(" ", 1)[1]
        source = (PACKAGE / file).read_text("utf-8")
        lines = [f"line {line} {name}" for of, line, name in hard_to_read(source) if of == kind]
        found.append((f"tfrtool/{file}", text, ", ".join(lines)))
    expect_none(
        found,
        f"A name has one meaning: use the field's word instead of {', '.join(sorted(VAGUE))}, or "
        f"`one` outside of loops. A function has at most {MOST_LINES} lines and {MOST_NAMES} local "
        "names: split it. tests/rules/readability.json holds how many of these each file has:",
    )


def test_fewer_are_written_down() -> None:
    """What was improved stays so: the file of counts has no count that is too high."""
    expect_none(
        raised(current_counts(), stored_counts()),
        "Thank you, this is easier to read than before. Run `make readability` so that it stays "
        "so; the counts in tests/rules/readability.json are now too high:",
    )


def test_counts_can_rise() -> None:
    """Each kind is counted, and what is harmless is not."""
    vague = "def f(held, x):\n    one, x.place = 1, 2\n    for one in x: pass\nclass Own: pass\n"
    assert [name for _, _, name in hard_to_read(vague)] == ["held", "one", "place"]
    assert hard_to_read("x = [one for one in y]\ndef g(place_of): pass") == []
    body = "".join(f"    a{number % 20} = {number}\n" for number in range(59))
    assert hard_to_read(f"def f():\n{body}") == []
    assert [kind for kind, _, _ in hard_to_read(f"def f():\n{body}    pass\n")] == [
        "long functions"
    ]
    assert [kind for kind, _, _ in hard_to_read(f"def f():\n{body[:-4]}    b = 1\n")] == [
        "functions with many names"
    ]
    assert raised({"a": {"k": 1}}, {"a": {"k": 2}, "b": {"k": 1}}) == [
        ("a", "2 k, 1 allowed"),
        ("b", "1 k, 0 allowed"),
    ]
