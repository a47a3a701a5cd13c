"""What the package offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tfrtool


@pytest.mark.tf
@pytest.mark.parametrize("name", tfrtool.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    """Each name in __all__ can be had, and says what it is."""
    value = getattr(tfrtool, name)
    assert value.__doc__


def test_names_are_spelt_out_once_more_for_type_checkers() -> None:
    """The list that is loaded on first use and __all__ are the same."""
    assert sorted(tfrtool.__all__) == sorted(tfrtool._HOME_OF)
    assert set(tfrtool.__all__) <= set(dir(tfrtool))


def test_unknown_names_are_attribute_errors() -> None:
    """A name that isn't there fails as in any module."""
    with pytest.raises(AttributeError, match="nonsense"):
        tfrtool.nonsense  # noqa: B018


def test_importing_the_package_loads_nothing() -> None:
    """`import tfrtool` brings in none of its rooms, and no other package."""
    program = (
        "import sys; before = set(sys.modules); import tfrtool; "
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('_')))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(output.stdout.strip("[]\n").replace("'", "").split(", "))
    assert "tfrtool" in loaded
    assert not {name for name in loaded if name.startswith("tfrtool.")}
    assert not loaded & {"numpy", "google", "click", "tensorflow", "PIL", "tqdm"}
