"""Tests of book/lab/gpu_report.py: what the report says of made-up results, and that it names nobody."""

import os
import platform
import re
import sysconfig

import pytest
import torch

import gpu_report
from gpu_report import Result, block, results

XML = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" hostname="grace-7">
<testcase classname="tests.test_ddp" name="test_sums[1]" />
<testcase classname="tests.test_ddp" name="test_sums[2]" />
<testcase classname="tests.test_ddp" name="test_sums[3]"><failure message="boom">TRACEBACK</failure></testcase>
<testcase classname="tests.test_ddp" name="test_start"><error message="at setup">no start</error></testcase>
<testcase classname="tests.test_scratch" name="test_steps"><skipped type="pytest.skip" message="needs 2 GPUs, here are 1">x</skipped></testcase>
</testsuite></testsuites>"""
FACTS = {"GPUs": "1: Some GPU (80 GB)", "torch": "2.15.0"}


@pytest.fixture
def report(monkeypatch):
    """Of the results above, where a test failed on grace-7 in a home folder of Ada's."""
    monkeypatch.setattr(platform, "node", lambda: "grace-7")
    monkeypatch.setenv("HOME", home := os.path.join(os.sep, "home", "ada"))
    root, packages = gpu_report.ROOT, sysconfig.get_path("purelib")
    traceback = "\n".join([f"line {i}" for i in range(100)] + [
        f"{root}/tests/test_ddp.py:12: in test_sums", f"{packages}/torch/nn/modules/linear.py:134: in forward",
        f'File "{home}/my book/y.py", line 3', "C:\\Users\\ada\\book\\z.py", "/tmp/pytest-of-ada/pytest-0/out.txt",
        "[W socket.cpp] cannot reach [grace-7]:29500 for ada", "RuntimeError: 3/4 of tests/a.py, " + "x" * 300])
    return block(FACTS, results(XML.replace("TRACEBACK", traceback)), "| row |")


def test_each_test_is_counted_as_what_it_was(report):
    assert "#### Tests: 2 passed, 2 failed, 1 skipped\n" in report  # a skip taken for a pass would say 3
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if ".py::" in line and "|" in line]
    assert rows == [["test_ddp.py::test_sums", "2 passed", ""], ["test_ddp.py::test_sums", "1 failed", ""],
                    ["test_ddp.py::test_start", "1 failed", ""],
                    ["test_scratch.py::test_steps", "1 skipped", "needs 2 GPUs, here are 1"]]
    assert "- GPUs: 1: Some GPU (80 GB)\n- torch: 2.15.0\n" in report and report.endswith("| row |")


def test_of_a_failure_the_last_lines_are_shown_without_host_user_or_folder(report):
    assert not re.search(r"grace-7|\bada\b|/home|/tmp|Users|" + re.escape(str(gpu_report.ROOT)), report)
    shown = re.search(r"test_ddp.py::test_sums\[3\]\n\n~~~text\n(.*?)\n~~~", report, re.S)[1].splitlines()
    assert len(shown) == gpu_report.LINES and shown[-8] == "line 99" and len(shown[-1]) == gpu_report.WIDTH
    assert shown[-7:-1] == ["tests/test_ddp.py:12: in test_sums", "torch/nn/modules/linear.py:134: in forward",
                            'File "…/my book/y.py", line 3', "…/z.py", "…/out.txt", "[W socket.cpp] cannot reach [HOST]:29500 for USER"]
    assert shown[-1].startswith("RuntimeError: 3/4 of tests/a.py, xxx")
    assert "test_ddp.py::test_start\n\n~~~text\nno start\n~~~" in report


def test_where_the_bench_fails_there_is_still_a_report(monkeypatch, capsys):
    def bench_rows():
        raise ValueError("no row")

    for name, value in {"run_tests": lambda: [Result("test_x.py::test_y", "passed", "")], "bench_rows": bench_rows, "machine": lambda: FACTS}.items():
        monkeypatch.setattr(gpu_report, name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    gpu_report.main()
    said = capsys.readouterr().out
    assert said.startswith("### Report from GPUs\n") and "1 passed, 0 failed, 0 skipped" in said
    assert "Nothing was measured:" in said and "\nValueError: no row\n" in said
