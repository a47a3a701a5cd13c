"""Names from records, which may say anything."""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfrtool.inspection.extract.safe_names import NAME_BYTES, numbered, safe_part, safe_path

_USUAL = (b"..", b".", b"/", b"\\", b"C:", b"\0", b"\n", b" ", b"CON", b"nul.jpg", b"a", b"b.jpg")
_RARE = (b"\xff", b"\xc3\xa9", b"\xe2\x80\xae", b"x" * 300, b"\xe2\x82\xac" * 100, b"?", b"a/" * 40)
pieces = st.sampled_from((*_USUAL, *_RARE, b".tfrtool-"))
texts = st.text(max_size=20).map(str.encode)
names = st.one_of(st.binary(max_size=60), texts, st.lists(pieces, max_size=8).map(b"".join))
UNSEEN = {"Cc", "Cf", "Zl", "Zp"}


@given(name=names, windows=st.booleans())
@example(name=b"a/" * 3000 + b"x.jpg", windows=False)
@example(name=b"\xe2\x82\xac" * 4000, windows=True)
@example(name=b" " * 300 + b"b", windows=True)
@example(name=(b"y" * 200 + b"/") * 10 + b"z.jpg", windows=False)
@example(name=b"a/" * 40 + b"C:/b", windows=False)
def test_any_name_becomes_a_path_that_stays_inside(name: bytes, windows: bool) -> None:
    """Whatever bytes a record gives, no part leads out, names a device, or can't be a name."""
    made = safe_path(name, windows=windows)
    for part in made:
        assert part not in ("", ".", "..")
        assert 0 < len(part.encode("utf-8")) <= NAME_BYTES
        assert not set(part) & {"/", "\\", "\0", "\n", "\x7f"}
        assert not {unicodedata.category(mark) for mark in set(part) - {*"\u200c\u200d"}} & UNSEEN
        assert not part.casefold().startswith(".tfrtool-")
        assert part[-1] not in ". "
        assert PureWindowsPath(part).drive == ""
        assert not _is_reserved(part)
        assert not windows or not set(part) & set('<>:"|?*')
    path = "/".join(made)
    assert len(path.encode()) <= 1000
    assert not PurePosixPath(path).is_absolute()
    assert not PureWindowsPath(path).anchor


def _is_reserved(part: str) -> bool:
    devices = {"CON", "PRN", "AUX", "NUL"} | {f"{d}{n}" for d in ("COM", "LPT") for n in range(10)}
    return part.split(".")[0].rstrip(" ").upper() in devices


@given(name=names, windows=st.booleans())
def test_what_is_safe_is_left_alone(name: bytes, windows: bool) -> None:
    """A name that was made safe is safe, and is changed no further."""
    made = safe_path(name, windows=windows)
    assert safe_path("/".join(made).encode(), windows=windows) == made


@pytest.mark.parametrize(
    "name",
    [
        "1.jpg",
        "cat/1.jpg",
        "PetImages/Cat/1.jpg",
        "été/日本/photo 1 (2).JPG",
        "-rf.jpg",
        ".hidden/..x",
        "what?.jpg",
        "12:30:00.jpg",
        "console.jpg",
        "a" * 251 + ".jpg",
        "👩‍🚀.png",
        "می‌خواهم.jpg",
        "a\u00a0b.jpg",
    ],
)
def test_usual_names_are_kept(name: str) -> None:
    """What people call their files stays as it is, on a system that allows it."""
    assert "/".join(safe_path(name.encode(), windows=False)) == name


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (b"../../etc/passwd", "etc/passwd"),
        (b"/etc/passwd", "etc/passwd"),
        (b"a/./b//c.jpg", "a/b/c.jpg"),
        (b"C:\\x\\y.jpg", "C%3A/x/y.jpg"),
        (b"\\\\server\\share\\y.jpg", "server/share/y.jpg"),
        (b"a\0.jpg", "a%00.jpg"),
        (b"a\x1b[2J.jpg", "a%1B[2J.jpg"),
        (b"a\xc2\x85.jpg", "a%C2%85.jpg"),
        ("a\u202egpj.exe".encode(), "a%E2%80%AEgpj.exe"),
        ("\u2066a\u200b\ufeff".encode(), "%E2%81%A6a%E2%80%8B%EF%BB%BF"),
        ("a\u2028b\u2029".encode(), "a%E2%80%A8b%E2%80%A9"),
        (b".tfrtool-lock/x", "%2Etfrtool-lock/x"),
        (b"\xff\xfe.jpg", "%FF%FE.jpg"),
        (b"con/Aux.jpg", "_con/_Aux.jpg"),
        (b"a. /b...", "a%2E%20/b%2E%2E%2E"),
        (b"x" * 300 + b".jpg", "x" * 251 + ".jpg"),
        (b"f/" * 600 + b"1.jpg", "f/" * 32 + "1.jpg"),
        (b"", ""),
        (b"..", ""),
    ],
)
def test_bad_names_are_changed_as_little_as_can_be(name: bytes, path: str) -> None:
    """A name that can't be kept is as near to it as can be."""
    assert "/".join(safe_path(name, windows=False)) == path


@given(text=st.text(max_size=400))
def test_a_class_is_one_folder(text: str) -> None:
    """A class name makes one folder, or none; slashes in it part nothing."""
    made = safe_part(text, windows=False)
    assert safe_path(made.encode(), windows=False) == ((made,) if made else ())


@given(name=names, number=st.integers(1, 10**9))
def test_numbers_keep_names_safe(name: bytes, number: int) -> None:
    """A number goes before the suffix, and makes no name too long."""
    for part in safe_path(name):
        made = numbered(part, number)
        assert safe_path(made.encode()) == (made,)
        assert made != numbered(part, number + 1)
    assert numbered("cat.jpg", 2) == "cat_2.jpg"
