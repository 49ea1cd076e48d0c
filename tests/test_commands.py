"""Tests of `python -m d2lpar`: what a reader types, once in a process of its own."""

import subprocess
import sys

import pytest

from d2lpar.__main__ import main


@pytest.fixture
def command(monkeypatch, capsys):
    """Do what these words ask for; the exit code, and what is printed on stdout and on stderr."""
    def do(*words):
        monkeypatch.setattr(sys, "argv", ["d2lpar", *words])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return do


def test_an_unknown_command_shows_the_known_ones(command):
    code, _, err = command("dance")
    assert code == 2 and "choose from" in err and "diagnose" in err


def test_script_writes_the_script_once_and_says_how_to_run_it(command, tmp_path, root, monkeypatch):
    def write(*words):
        code, *said = command("script", *words)
        return code, "".join(said)

    monkeypatch.chdir(tmp_path)
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
    run = subprocess.run([sys.executable, "-W", "error", "-m", "d2lpar", "train", "--strategy", "ddp", "--checkpoints", "runs"],
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 1 and run.stdout == ""
    assert run.stderr == (f"`python -m d2lpar {'train'}` is now a script of your own: `python -m d2lpar script` writes train_ddp.py, "
                          "for torchrun.\n")
