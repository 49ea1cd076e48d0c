"""The site on a newer Sphinx than jupyter-book 1 allows: does the way out stay open?

`python book/tools/try_newer_sphinx.py` installs the book into an environment that is gone at the end, there the
newest Sphinx, MyST and theme over what jupyter-book asks for, and builds the site; a warning is an error.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from try_install import ROOT, environment

NEWEST = ["sphinx", "myst-parser", "myst-nb", "sphinx-book-theme", "pydata-sphinx-theme"]


def main(folder: Path) -> None:
    run = environment(folder)
    run("-m", "pip", "install", "-q", "-r", ROOT / "requirements.txt", cwd=ROOT)
    run("-m", "pip", "install", "-q", "--upgrade", *NEWEST)
    versions = {line["name"].lower(): line["version"] for line in json.loads(run("-m", "pip", "list", "--format=json"))}
    print(", ".join(f"{name} {versions[name]}" for name in ["jupyter-book", *NEWEST]), flush=True)
    build = "from jupyter_book.cli.main import main; main()"
    run("-c", build, "build", ROOT, "--path-output", folder, "-W", "-n", "--keep-going", "-q")
    print(f"built without a warning: {sum(1 for _ in (folder / '_build' / 'html').rglob('*.html'))} pages")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
