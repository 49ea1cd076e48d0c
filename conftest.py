"""Before any test or kernel: what the reader has set for matplotlib, IPython and Python stays outside."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

VENV = Path(__file__).resolve().parent / ".venv"


def pytest_configure(config: pytest.Config) -> None:
    """Settings come from a folder of the book's own: in `.venv` as for make, else one that is gone at the end."""
    folder = VENV / "settings"
    if not os.access(VENV, os.W_OK):
        temporary = tempfile.TemporaryDirectory(prefix="d2lpar-settings-")
        config.add_cleanup(temporary.cleanup)
        folder = Path(temporary.name)
    for name, part in (("MPLCONFIGDIR", "matplotlib"), ("IPYTHONDIR", "ipython"), ("JUPYTER_RUNTIME_DIR", "runtime")):
        os.environ[name] = str(folder / part)
    for name in ("MATPLOTLIBRC", "MPLBACKEND", "PYTHONSTARTUP"):
        os.environ.pop(name, None)
    if config.getoption("nbval") and not list(folder.glob("matplotlib/fontlist-*.json")):
        # here, because on a slow machine it is announced in the output of the first cell that needs it
        subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], capture_output=True)
