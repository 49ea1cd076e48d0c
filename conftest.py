"""Before any test or kernel: the user's settings stay outside, and how many processes share the work."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
# the user's settings of matplotlib, IPython, pytest and the book, and proxies: nothing here asks another machine
UNSET = ("MATPLOTLIBRC", "MPLBACKEND", "PYTHONSTARTUP", "PYTHONDONTWRITEBYTECODE", "D2LPAR_FULL", "D2LPAR_DATA",
         *(f"{scheme}_proxy" for scheme in ("http", "https", "ftp", "all")))
# what is costly and shared, and by the tests of which files
TOGETHER = {"site": "browser pages site chapter_sizes twins", "lab": "lab", "launch": "launch",
    "kills": "kill_tests", "gpt": "small_gpt", "hangs": "it_hangs",
    "ranks": "batchnorm bench ddp diagnosis evaluation frames fully_shard ranks sharding traffic train_ddp ways"}
SHARES = {f"tests/test_{name}.py": what for what, names in TOGETHER.items() for name in names.split()}
# the same, where it is a few tests of a file: words in their names
SHARED_BY = {"the wheel": ["wheel"], "ranks of checks": ["ex-count-words", "ex-slip-through", "solution[14_"]}


# A thread that waits for another gives its core away, instead of spinning: with three processes on two cores, the
# steps of a ResNet-18 take a third of the time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", action="store_true", help="end with a table of the CPU seconds of cells and test files")


def pytest_configure(config: pytest.Config) -> None:
    """Settings come from a folder of the book's own: in `.venv` as for make, else in one that is deleted at the end.

    Kernels and ranks import the package of this checkout, whatever PYTHONPATH was, and kernels get ports that no other
    process is given before they are up. All temporary files are in one folder, which is deleted at the end: kernels
    that nbval kills cannot delete theirs, and torchrun never deletes its own.
    """
    from jupyter_client.connect import LocalPortCache

    from helpers.ports import free_port

    if config.getoption("--cpu"):
        from cpu_seconds import CpuSeconds

        config.pluginmanager.register(CpuSeconds())
    LocalPortCache.find_available_port = lambda cache, ip: free_port()
    if not hasattr(config, "workerinput"):  # the processes that share the tests inherit the folder
        temporary = tempfile.mkdtemp(prefix="d2lpar-")  # a short name, because there may be sockets in it
        os.environ["TMPDIR"] = tempfile.tempdir = temporary
        # after multiprocessing has deleted its own folder, which it expects to find
        util.Finalize(None, shutil.rmtree, (temporary,), {"ignore_errors": True}, exitpriority=-101)
    folder = VENV / "settings" if os.access(VENV, os.W_OK) else Path(tempfile.mkdtemp(prefix="settings-"))
    for name, part in (("MPLCONFIGDIR", "matplotlib"), ("IPYTHONDIR", "ipython"), ("JUPYTER_RUNTIME_DIR", "runtime")):
        os.environ[name] = str(folder / part)
    for name in UNSET:
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait leave the cores to the other processes
    # glibc, in processes started from here on, keeps most of a step's memory for the next (see the page on page faults)
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "33554432")
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "268435456")
    if config.getoption("nbval") and not list(folder.glob("matplotlib/fontlist-*.json")):
        # here, because on a slow machine it is announced in the output of the first cell that needs it
        subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], capture_output=True)


def pytest_collection() -> None:
    """The processes that share the tests have started by now, with these options; a pytest inside a test has none."""
    os.environ.pop("PYTEST_ADDOPTS", None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Send the functions of a test to ranks by value, so that no rank imports the test's file, which needs pytest.

    Freeze the objects loaded so far, which the garbage collector would otherwise search again each time.
    """
    import cloudpickle

    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        cloudpickle.register_pickle_by_value(module)
    gc.freeze()


def pytest_unconfigure() -> None:
    """Unfreeze these objects, so that Python frees them when it exits; otherwise nanobind prints a list of leaks."""
    gc.unfreeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A notebook of the user's own in `notebooks/` is not run, unless she names it."""
    if collection_path.suffix == ".ipynb" and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        from revisions import tracked

        return collection_path not in tracked(ROOT) or None
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """All tests: a process per core and one more, because many wait, but four at most. Some that are named: none."""
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return min((os.cpu_count() or 1) + 1, 4) if everything else 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What belongs together stays in one process: the cells of a notebook, and tests that share what is costly.

    xdist has `--dist loadgroup` for this, which with xdist 3.8 and pytest 9.2 leaves the tests of a group apart.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            if file.endswith(".ipynb"):
                return file
            found = [what for what, words in SHARED_BY.items() if any(word in test for word in words)]
            return SHARES.get(file) or (found or [nodeid])[0]

    return Together(config, log)
