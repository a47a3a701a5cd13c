r"""What the site needs besides: GitHub wants `a\|b` in a table, and Markdown shows it so."""

from __future__ import annotations

import re


def on_page_content(html: str, **_: object) -> str:
    """Return a page without the backslashes before bars in its code."""
    return re.sub(
        r"<code>[^<]*</code>", lambda code: code[0].replace("\\|", "|"), html, flags=re.DOTALL
    )
