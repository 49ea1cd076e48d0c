"""train_ddp.py with few images, changed as a misfortune would change it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from d2lpar.pages.kill_tests import SCRIPT


def script_on_few_images(folder: Path, changes: Mapping[str, str] | None = None) -> Path:
    """Write the script, on 512 images, with each of some words replaced by others."""
    text = SCRIPT.read_text("utf8")
    for old, new in {"load_data_fashion_mnist(1)": "load_data_fashion_mnist(1, 512, 64)", **(changes or {})}.items():
        assert text.count(old) == 1, f"{text.count(old)} times: {old}"
        text = text.replace(old, new)
    (path := folder / "train_ddp.py").write_text(text, "utf8")
    return path
