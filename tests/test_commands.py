"""Tests of `python -m d2lpar`: what a reader types, in a process of its own."""

import os
import subprocess
import sys

import pytest


def command(*words, **variables):
    return subprocess.run([sys.executable, "-W", "error", "-m", "d2lpar", *words], capture_output=True, text=True,
                          env={**os.environ, **variables}, timeout=120)


@pytest.mark.slow
def test_a_download_into_an_impossible_place_fails_in_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    run = command("data", D2LPAR_DATA=str(tmp_path / "file" / "data"))
    assert run.returncode == 1 and run.stderr.count("\n") == 1
    assert run.stderr.startswith(str(tmp_path)) and "cannot be written" in run.stderr and "D2LPAR_DATA" in run.stderr


@pytest.mark.slow
def test_an_unknown_command_shows_the_known_ones():
    run = command("dance")
    assert run.returncode == 2 and "choose from" in run.stderr and "data" in run.stderr


@pytest.mark.slow
def test_a_bench_without_its_data_fails_in_one_line(tmp_path):
    run = command("bench", "--quick", D2LPAR_DATA=str(tmp_path / "nothing"))
    assert run.returncode == 1 and run.stdout == ""
    assert "D2LPAR_DATA" in run.stderr and run.stderr.count("\n") == 1
