"""What the viewer's pages have in common: the frame around them, with the progress of reading."""

from typing import Any

from tfrtool.errors import human_count
from tfrtool.view.live import Live
from tfrtool.view.pieces import environment


def progress(live: Live) -> str:
    """Return how far reading is, with counts."""
    step = live.found.progress
    if live.done or step is None:
        return ""
    share = f"{100 * step.done / step.total:.0f} %, " if step.total else ""
    so_far = "" if live.found.table_done else " so far"
    count = human_count(live.found.table.rows, "record")
    return f"{step.what.capitalize()}: {share}{count}{so_far}"


def render_page(live: Live, template: str, **values: Any) -> str:
    """Return a page; ``here`` is its name without the ending."""
    errors = live.found.errors.items()
    quiet = ("schema", "statistics")  # of records that aren't Examples
    shown = [f"{step.removesuffix('_done')}: {why}" for step, why in errors if step not in quiet]
    page = environment().get_template(f"{template}.html")
    return page.render(  # type: ignore[no-any-return]
        f=live.found,
        heading=live.found.title,
        here=template,
        progress=progress(live),
        version=live.version,
        done=live.done,
        marks=live.marks,
        warnings=shown,
        **values,
    )
