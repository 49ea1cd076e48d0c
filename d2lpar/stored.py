"""What runs have found that take too long for a page, stored in the book (chapter 2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from d2lpar.checks import shown

FOLDER = Path(__file__).resolve().parents[1] / "book" / "_data"


def stored(name: str) -> dict[str, Any]:
    """The results that `book/_data/NAME.json` holds; "about" says by which command, on which machine and data.

    Raises:
        ValueError: if there are none of this name.
    """
    known = sorted(file.stem for file in FOLDER.glob("*.json"))
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"there are stored results of the names {known}, not {shown(name)}; "
                         "they lie in the book's folder, not in the package")
    return json.loads((FOLDER / f"{name}.json").read_text("utf8"))
