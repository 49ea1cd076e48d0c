"""What the test files share: which tests run when, the book's notebooks, and the site, built once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import configuration, settings

import revisions

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from d2lpar.launch import RankGroup

pytest.register_assert_rewrite("helpers")  # so that a check in there says what it compared

# the same cases in every run
settings.register_profile("d2lpar", database=None, derandomize=True, deadline=None)
settings.load_profile("d2lpar")

ROOT = Path(__file__).resolve().parents[1]
NO_BROWSER = "no Chromium or Chrome on this machine"
NO_CLUSTER = "this machine cannot make a cluster"


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Leave no folder next to the book: hypothesis keeps its files with all other temporary files."""
    configuration.set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "hypothesis")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set()
    if not config.getoption("nbval"):
        left_out |= {item for item in items if item.get_closest_marker("slow") or "group_of" in getattr(item, "fixturenames", ())}
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and config.getoption("markexpr") != "weekly":
        left_out |= {item for item in items if item.get_closest_marker("weekly")}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu:
        import torch

        gpus = torch.cuda.device_count()
        for item in on_gpu:
            needed = max((*mark.args, 1)[0] for mark in item.iter_markers("gpu"))  # gpu(2) needs two
            if gpus < needed:
                item.add_marker(pytest.mark.skip(reason=f"needs {'a GPU' if needed == 1 else f'{needed} GPUs'}, here are {gpus}"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """The last lines say how many tests lacked a browser or a cluster, and how many tests ran on a cluster."""
    result = yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not hasattr(session.config, "workerinput"):
        skipped = [report for report in reporter.stats.get("skipped", []) if NO_BROWSER in str(report.longrepr)]
        if skipped:
            reporter.write_line(f"{len(skipped)} browser test{'s' * (len(skipped) > 1)} NOT run: no Chromium", red=True)
        reports = {outcome: [report for report in reporter.stats.get(outcome, []) if "test_cluster.py" in getattr(report, "nodeid", "")]
                   for outcome in ("passed", "skipped")}
        if lacking := [report for report in reports["skipped"] if NO_CLUSTER in str(report.longrepr)]:
            reporter.write_line(f"{len(lacking)} cluster tests NOT run: {str(lacking[0].longrepr).partition(f'{NO_CLUSTER}: ')[2][:-2]}", red=True)
        elif reports["passed"]:
            reporter.write_line(f"cluster tests that ran: {len(reports['passed'])}")
    return result


@pytest.fixture
def one_core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Virtual devices on a CPU, even if there are GPUs, and one core for the caller as for each device."""
    import torch

    if "gpu" not in request.keywords:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(cores)


@pytest.fixture
def ctrl_c_is_obeyed() -> Iterator[None]:
    """Even if it was ignored, as in a background job of a shell; no test leaves a different handler behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


@pytest.fixture
def no_meter_is_left_on() -> Iterator[None]:
    from d2lpar.collectives import Meter

    yield
    left, Meter.on = Meter.on, None
    assert left is None


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The book's first 140 training and 70 test images, so that a training run takes seconds."""
    from d2lpar import data

    monkeypatch.setattr(data, "NUM_TRAIN", 140)
    monkeypatch.setattr(data, "NUM_TEST", 70)


@pytest.fixture(scope="session")
def group_of() -> Iterator[Callable[[int], RankGroup]]:
    """The group of so many ranks that the tests share. It is started once: each rank has to load PyTorch."""
    from d2lpar.launch import RankGroup

    groups: dict[tuple[int, str], RankGroup] = {}

    def group_of(k: int) -> RankGroup:
        group = RankGroup(k)  # where a test hides the GPUs, the group has another backend
        return groups.setdefault((k, group.backend), group)

    yield group_of
    for group in groups.values():
        group.close()


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the book."""
    return ROOT


@pytest.fixture(scope="session")
def chapters(root: Path) -> list[Path]:
    """The notebooks on the reader's path, in order."""
    found = [path for path in revisions.tracked_notebooks(root) if path.parent.name == "notebooks"]
    assert found, "there are no chapters"
    return found


@pytest.fixture(scope="session")
def notebooks(root: Path) -> list[Path]:
    """The chapters, and the pages of the appendix."""
    return revisions.tracked_notebooks(root)


@pytest.fixture(scope="session")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built from nothing as `make book` does; a warning is an error."""
    out = tmp_path_factory.mktemp("site")
    clean = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}  # a figure may have set it
    build = subprocess.run([Path(sys.executable).with_name("jupyter-book"), "build", root, "--path-output", out,
                            "-W", "-n", "--keep-going", "-q"], capture_output=True, text=True, env=clean)
    assert build.returncode == 0, (
        f"Fix what the build complains about, and try it with: make book (book/authors.md, Fix a typo)\n{build.stderr}{build.stdout}")
    return out / "_build" / "html"


@pytest.fixture(scope="session")
def pages(site: Path) -> list[Path]:
    """Every page of the English site that readers can stay on; index.html only sends them to the first."""
    return sorted(page for page in site.rglob("*.html")
                  if not {"_static", "zh"} & set(page.relative_to(site).parts) and page != site / "index.html")


@pytest.fixture(scope="session")
def chinese_pages(site: Path) -> list[Path]:
    return sorted(page for page in (site / "zh").rglob("*.html") if page != site / "zh" / "index.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The Chromium or Chrome of this machine."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        pytest.skip(NO_BROWSER)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()
