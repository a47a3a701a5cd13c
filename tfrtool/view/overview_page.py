"""The page of all records: the sections of the report, with links to the records."""

from tfrtool.view.live import Live
from tfrtool.view.page_address import THUMBS, PageAddress, picture_url
from tfrtool.view.page_frame import render_page
from tfrtool.view.pieces import SECTIONS, Links, section


def overview_page(live: Live) -> str:
    """Render the sections of the report, with links to the records."""
    asked = PageAddress({}, live.found)
    if live.overview[0] != live.version:
        links = Links(
            lambda row: picture_url(row, THUMBS["s"]),
            live.found.record_names.path,
            lambda **filters: asked.url(**filters),
            lambda shard, offset: f"/damage/{shard}/{offset}",
        )
        shown = {name: section(name, live.found, links) for name in SECTIONS}
        live.overview = live.version, {name: html for name, html in shown.items() if html}
    return render_page(live, "overview", sections=live.overview[1], titles=SECTIONS)
