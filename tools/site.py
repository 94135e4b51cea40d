"""Hooks of mkdocs (see mkdocs.yml): pages from the root of the repository, and links that leave docs/.

In docs/ a page links to ../CONTRIBUTING.md, and that page to docs/trust.md, so that both work where the repository is
browsed. On the site all of them lie in one folder.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
MOVED = {
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the root, and what they are called on the site."""
ON_SITE = {**MOVED, "README.md": "index.md"}
LINK = re.compile(r"(?<=\]\()[^)\s#]+(?=[)#])")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for name, page in MOVED.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between the root and docs/ into links within the site."""
    here = page.file.src_uri
    in_root = {there: name for name, there in MOVED.items()}
    written_in = "" if here in in_root else posixpath.join("docs", posixpath.dirname(here))

    def on_site(link: re.Match[str]) -> str:
        if "://" in link[0]:
            return link[0]
        target = posixpath.normpath(posixpath.join(written_in, link[0]))  # from the root of the repository
        target = ON_SITE.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(here) or ".")

    return LINK.sub(on_site, markdown)
