"""Results as cells of a notebook: the pieces of the pages, in a frame that nothing leaves."""

from typing import Any

from markupsafe import Markup

from tfrtool.errors import printable
from tfrtool.view.pieces import environment, health_of, style
from tfrtool.view.run_report import run_pieces

_HEIGHTS = {"dataset": 320, "schema": 320, "health": 420, "run": 640}


def cell(name: str, values: dict[str, Any]) -> Markup:
    """Return a page in a frame without scripts, which keeps its styles to itself.

    Args:
        name: "dataset", "schema", "health" or "run".
        values: what `Shown._page` returns.
    """
    heading = printable(str(values.pop("heading", "")))
    if name == "health":
        values = health_of(values["verdict"])
    elif name == "run":
        values = run_pieces(values["epochs"], values["run"])
    page = (
        environment()
        .get_template("cell.html")
        .render(
            style=style(), name=f"cell_{name}.html", heading=heading, title="", id=name, **values
        )
    )
    return Markup(
        '<iframe sandbox="" srcdoc="{}" width="100%" height="{}" title="{}"'
        ' style="border: 0"></iframe>'
    ).format(page, _HEIGHTS[name], heading or name)
