"""Tests of `python -m d2lpar`: what a reader types, and what is answered before PyTorch is imported."""

import errno
import os
import re
import subprocess
import sys
import zipapp

import pytest

from d2lpar.__main__ import main
from d2lpar._command_line import answer


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


def test_watch_names_the_folder_that_needs_room_on_a_full_disk(command, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "train.py").touch()
    monkeypatch.setattr("d2lpar.diagnosis.scripts.watch", fail)
    monkeypatch.setattr("signal.signal", lambda *args: None)
    monkeypatch.setattr("tempfile.tempdir", "/small")
    code, out, err = command("watch", str(tmp_path / "train.py"))
    assert (code, out, err.count("\n")) == (2, "", 1) and "/small" in err and "TMPDIR" in err and "Traceback" not in err


def test_script_writes_the_script_once_and_says_how_to_run_it(command, tmp_path, root, monkeypatch):
    def write(*words):
        code, *said = command("script", *words)
        return code, "".join(said)

    monkeypatch.chdir(tmp_path)
    assert write() == (0, "wrote train_ddp.py. Run it on two ranks: torchrun --standalone --nproc-per-node=2 train_ddp.py\n")
    assert (tmp_path / "train_ddp.py").read_bytes() == (root / "d2lpar" / "train_ddp.py").read_bytes()
    (tmp_path / "train_ddp.py").write_text("mine")
    code, said = write()
    assert code == 2 and said.startswith("train_ddp.py already exists and was not changed.") and said.count("\n") == 1
    assert (tmp_path / "train_ddp.py").read_text() == "mine"
    assert write("other.py")[0] == 0 and (tmp_path / "other.py").exists()
    code, said = write("nowhere/other.py")
    assert code == 2 and said == "nowhere/other.py cannot be written: No such file or directory\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder: scripts, a module and a package, and what cannot be run."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import d2lpar")
    (tmp_path / "program.py").write_text("import d2lpar")
    (tmp_path / "unclosed.py").write_text("import torch\nprint(1\n")
    (tmp_path / "latin.py").write_bytes(b'x = "\xe9"\n')
    (tmp_path / "declared.py").write_bytes(b'# coding: latin-1\nx = "\xe9", "\\d"\n')  # gives a warning
    (tmp_path / "null.py").write_bytes(b"x = 1\0")
    (tmp_path / "notes.txt").write_text("not a script")
    zipapp.create_archive(tmp_path / "package", tmp_path / "archive", main="d2lpar:no_such_name")
    monkeypatch.chdir(tmp_path)
    return tmp_path


CARET = r'  File ".*unclosed\.py", line 2\n    print\(1\n         \^\nSyntaxError: \'\(\' was never closed\n'
NO_COUNT = r"usage: (?s:.*)error: argument --ranks: must be a whole number of at least 1, got "
WHICH = r"which script\? python -m d2lpar watch train\.py\n"


@pytest.mark.parametrize("words, said", [
    *((f"{what} --speed=9 program.py", "usage: .*\n.*unrecognized arguments: --speed=9\n") for what in ("watch", "diagnose", "script")),
    *((f"{what} unclosed.py", CARET) for what in ("watch", "diagnose")),
    *((f"{what} latin.py", r'  File "latin\.py", line 1\n.*\n *\^?\nSyntaxError: .*utf-8.*\n') for what in ("watch", "diagnose")),
    *((f"{what} null.py", r"null\.py: \w+Error: .*null bytes.*\n") for what in ("watch", "diagnose")),
    *((f"{what} gone.py", r"there is no file gone\.py\n") for what in ("watch", "diagnose")),
    ("watch package", "package is a folder, not a script\n"), ("watch notes.txt", r'  File "notes\.txt", line 1\n(?s:.*)SyntaxError: .*\n'),
    ("diagnose notes.txt", r"notes\.txt is not a Python script \(its name must end in \.py\)\n"),
    *((f"watch --ranks {k} program.py", NO_COUNT + rf"{k}\n") for k in ("-1", "0", "1.5", "two")), ("diagnose --ranks=0 program.py", NO_COUNT + "0\n"),
    ("watch --ranks", r"usage: .*\n.*--ranks: expected one argument\n"), ("watch", WHICH), ("watch -m", WHICH), ("watch --show", WHICH),
    ("watch -m gone", "there is no module gone\n"), ("watch -m .", r"there is no module \.\n"), ("watch -m unclosed", CARET),
    ("watch -m program.py", r"there is no module program\.py\. To watch a file, leave out -m\n"),
    ("script program.py", r"program\.py already exists and was not changed\. .*\n")])
def test_what_cannot_be_run_is_said_once_with_exit_code_2(command, folder, words, said):
    code, out, err = command(*words.split())
    assert (code, out) == (2, "") and re.fullmatch(said, err), err


@pytest.mark.parametrize("words", ["watch program.py --help", "watch declared.py --ranks 0", "watch archive", "watch -m package.part", "watch -m torch.gone"])
def test_a_script_that_may_run_keeps_its_arguments_and_its_warnings(folder, words):
    assert answer(words.split())[1] == words.split()[1:]


# In a process of its own


@pytest.fixture
def without_torch(folder, root):
    """Run Python with these words, where PyTorch cannot be imported."""
    (folder / "fake").mkdir()
    (folder / "fake" / "torch.py").write_text("raise ImportError('PyTorch is imported')")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder / "fake"), str(root)])}

    def run(*words, **variables):
        ended = subprocess.run([sys.executable, "-W", "error", *words], env=env | variables, capture_output=True, text=True, timeout=120)
        return ended.returncode, ended.stdout, ended.stderr

    return run


@pytest.mark.parametrize("words, code, begin", [
    ("", 0, "usage: python -m d2lpar "), ("watch --help", 0, "usage: python -m d2lpar watch "), ("dance", 2, "usage: python -m d2lpar "),
    ("watch unclosed.py", 2, '  File "unclosed.py", line 2\n'), ("diagnose gone.py", 2, "there is no file gone.py\n"), ("script new.py", 0, "wrote new.py.")])
def test_what_needs_no_pytorch_is_answered_before_it_is_imported(without_torch, words, code, begin):
    ended, out, err = without_torch("-m", "d2lpar", *words.split())
    said, nothing = (err, out) if code else (out, err)
    assert (ended, nothing) == (code, "") and said.startswith(begin), err


@pytest.mark.parametrize("words", [["-m", "d2lpar", "watch", "program.py"], ["-m", "package", "d2lpar"], ["-m", "program"], ["-m", "d2lpar.cost"],
                                   ["-c", "import d2lpar"], ["program.py"]], ids=" ".join)
def test_any_other_program_that_imports_the_package_goes_on(without_torch, words):
    code, out, err = without_torch(*words, "--help")
    assert (code, out) == (1, "") and err.endswith("ImportError: PyTorch is imported\n"), err


def test_under_torchrun_nothing_is_answered_before_pytorch_is_imported(without_torch):
    code, out, err = without_torch("-m", "d2lpar", "--help", TORCHELASTIC_RUN_ID="run")
    assert (code, out) == (1, "") and err.endswith("ImportError: PyTorch is imported\n"), err
