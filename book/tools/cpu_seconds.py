"""Where the CPU time of the tests goes: `pytest --nbval --cpu` ends with a table of seconds.

A test is charged for the process that runs it and for everything that this process has started: kernels, ranks,
browsers. It pays for what it is the first to need, too: the first cell of a notebook for the kernel's start, the first
test of the site for building it. What is left, pytest's own start and the collection of the tests in each process, is
the fixed cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress

import psutil
import pytest
from _pytest.terminal import TerminalReporter

SHOWN = 40  # rows of each table
KEY = "cpu_seconds"


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time of a process, of its descendants that live, and of those that it has waited for."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it ended this moment, and will be counted with its parent
            total += sum(one.cpu_times()[:4])  # its own user and system time, and the same of its children that ended
    return total


class CpuSeconds:
    """The plugin: measures in each process that runs tests, and adds up in the one that reports."""

    def __init__(self) -> None:
        self.process = psutil.Process()
        self.seen = self.fixed = 0.0  # `fixed` is what no test has used
        self.of_tests: dict[str, float] = {}
        self.is_shared_out = False  # whether other processes have run the tests

    def since_last(self) -> float:
        """CPU seconds since the last call; never negative, although ranks whose parent was killed leave the count."""
        before, self.seen = self.seen, cpu_seconds(self.process)
        return max(0.0, self.seen - before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.fixed += self.since_last()
        result = yield
        self.of_tests[item.nodeid] = self.since_last()
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[KEY] = self.of_tests, self.fixed + self.since_last()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        of_tests, fixed = getattr(node, "workeroutput", {}).get(KEY, ({}, 0.0))  # no output: the process crashed
        self.of_tests.update(of_tests)
        self.fixed += fixed
        self.is_shared_out = True

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        # its own time alone where its children have reported theirs
        self.fixed += sum(self.process.cpu_times()[:2]) if self.is_shared_out else self.since_last()
        for line in table(self.of_tests, self.fixed):
            terminalreporter.write_line(line)


def table(of_tests: dict[str, float], fixed: float) -> list[str]:
    """The lines that are printed: a summary, then the notebooks, cells, test files and tests that cost most.

    Args:
        of_tests: CPU seconds by the name of a test, as pytest gives it.
        fixed: CPU seconds that no test has used.
    """
    files: dict[str, float] = defaultdict(float)
    for name, seconds in of_tests.items():
        files[name.partition("::")[0]] += seconds
    notebooks = {name: seconds for name, seconds in files.items() if name.endswith(".ipynb")}
    tests = {name: seconds for name, seconds in files.items() if name not in notebooks}
    cells = {name: seconds for name, seconds in of_tests.items() if name.partition("::")[0] in notebooks}
    single = {name: seconds for name, seconds in of_tests.items() if name not in cells}
    lines = ["", f"CPU seconds: {fixed + sum(files.values()):,.0f} in all; notebooks {sum(notebooks.values()):,.0f}, "
             f"tests {sum(tests.values()):,.0f}, fixed cost {fixed:,.0f}"]
    for title, rows in (("notebook", notebooks), ("cell", cells), ("test file", tests), ("test", single)):
        lines += ["", f"{'seconds':>8}  {title}"]
        dearest = sorted(rows.items(), key=lambda row: -row[1])[:SHOWN]
        lines += [f"{seconds:8.1f}  {name}" for name, seconds in dearest]
    return lines
