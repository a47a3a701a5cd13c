"""Line charts."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.images.colors import colors_of
from tfrtool.images.charts import draw_charts

_values = st.lists(st.one_of(st.none(), st.floats(width=32)), min_size=1, max_size=20)


def test_a_line_is_drawn_in_its_color() -> None:
    """Two lines bring two colors; a line without values brings none."""
    one = colors_of(draw_charts({"loss": {"training": [1.0, 0.5], "validation": [None, None]}}))
    two = colors_of(draw_charts({"loss": {"training": [1.0, 0.5], "validation": [0.9, 0.8]}}))
    assert (0x1F, 0x6F, 0xB4) in one
    assert (0xD9, 0x5F, 0x02) not in one
    assert {(0x1F, 0x6F, 0xB4), (0xD9, 0x5F, 0x02)} <= two


@settings(max_examples=10)
@given(_values, _values)
def test_any_history_can_be_drawn(first: list[float | None], second: list[float | None]) -> None:
    """NaN, infinities, huge and equal values, and single epochs never raise."""
    with Image.open(io.BytesIO(draw_charts({"loss": {"a": first, "b": second}}))) as image:
        assert image.format == "PNG"
