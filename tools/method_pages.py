"""Put each method's rows of the two tables in docs/methods/index.md onto its own page, between the markers there.

python tools/method_pages.py
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "methods"


def tables() -> list[dict[str, str]]:
    """Return the tables of the index: their first line under "", then each line by its method."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", (FOLDER / "index.md").read_text(encoding="utf-8"), re.M):
        head, rule, *rows = block.splitlines()
        found.append({"": f"{head}\n{rule}", **{row.split("|")[1].strip(): row for row in rows}})
    return found


def main() -> None:
    """Run the command."""
    known = tables()
    for page in sorted(FOLDER.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        marker = re.search(r"<!-- rows: (.*?) -->\n.*?<!-- end -->", text, re.S)
        if marker is None:
            continue
        parts = []
        for table in known:
            rows = [table[name] for name in marker[1].split(", ") if name in table]
            if rows:
                parts.append("\n".join([table[""], *rows]))
        filled = f"<!-- rows: {marker[1]} -->\n\n" + "\n\n".join(parts) + "\n\n<!-- end -->"
        page.write_text(text.replace(marker[0], filled), encoding="utf-8")


if __name__ == "__main__":
    main()
