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


def test_script_writes_the_script_once_and_says_how_to_run_it(tmp_path, root):
    def write(*words):
        run = subprocess.run([sys.executable, "-m", "d2lpar", "script", *words], capture_output=True, text=True, cwd=tmp_path)
        return run.returncode, run.stdout + run.stderr

    assert write() == (0, "wrote train_ddp.py. Run it on two ranks: torchrun --standalone --nproc-per-node=2 train_ddp.py\n")
    assert (tmp_path / "train_ddp.py").read_bytes() == (root / "d2lpar" / "train_ddp.py").read_bytes()
    (tmp_path / "train_ddp.py").write_text("mine")
    code, said = write()
    assert code == 2 and said.startswith("train_ddp.py is there already, and stays as it is.") and said.count("\n") == 1
    assert (tmp_path / "train_ddp.py").read_text() == "mine"
    assert write("other.py")[0] == 0 and (tmp_path / "other.py").exists()
    code, said = write("nowhere/other.py")
    assert code == 2 and said == "nowhere/other.py cannot be written: No such file or directory\n"


def test_what_train_was_is_said_in_one_line():
    run = command("train", "--strategy", "ddp", "--checkpoints", "runs")
    assert run.returncode == 1 and run.stdout == ""
    assert run.stderr == (f"`python -m d2lpar {'train'}` is now a script of your own: `python -m d2lpar script` writes train_ddp.py, "
                          "for torchrun.\n")
