"""Tests of `python -m d2lpar`: what a reader types, in a process of its own."""

import os
import subprocess
import sys

import pytest


def command(*words, **variables):
    return subprocess.run([sys.executable, "-W", "error", "-m", "d2lpar", *words], capture_output=True, text=True,
                          env={**os.environ, **variables}, timeout=120)


@pytest.mark.slow
def test_an_unknown_command_shows_the_known_ones():
    run = command("dance")
    assert run.returncode == 2 and "choose from" in run.stderr and "diagnose" in run.stderr
