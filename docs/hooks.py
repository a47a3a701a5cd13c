"""Hooks of the site: version, pages from the repository's root, option tables, bars in tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from option_tables import with_tables

from tfrtool import __version__

_ROOT = Path(__file__).parents[1]
_ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version in the header and the license in the footer."""
    config.site_name = f"tfrtool {__version__}"
    config.copyright = f"tfrtool {__version__}, Apache-2.0 license"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are in the repository's root."""
    for name in _ROOT_PAGES:
        text = (_ROOT / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name.lower(), content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert the option tables, and let links to files in the repository's root lead to pages."""
    for name in _ROOT_PAGES:
        markdown = re.sub(rf"\]\((?:\.\./)*{name}", f"]({name.lower()}", markdown)
    return with_tables(markdown)


def on_page_content(html: str, **_: Any) -> str:
    r"""Remove backslashes before bars in code: in a table, GitHub needs `a\|b`."""
    return re.sub(
        r"<code>[^<]*</code>", lambda code: code[0].replace("\\|", "|"), html, flags=re.DOTALL
    )
