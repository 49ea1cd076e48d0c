"""Tests of d2lpar.checkpoints: a checkpoint is whole or not there, and what is not whole is seen."""

from __future__ import annotations

import copy
import errno
import inspect
import os
import re
import signal
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d2lpar import checkpoints
from d2lpar.checkpoints import digest_of, newest_checkpoint, save_checkpoint


def state_of(step: int) -> dict:
    return {"step": step, "names": ["w", None], "w": torch.arange(12.0).view(3, 4) * step}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the checkpoints of updates 5 and 10."""
    for step in (5, 10):
        save_checkpoint(tmp_path / "runs" / "first", step, state_of(step))
    return tmp_path / "runs" / "first"


def files(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] + path.name[4:].split("-")[1] if path.suffix == ".pt" else path.name for path in folder.iterdir())


def assert_newest_is(step: int, folder: Path) -> None:
    path, state = newest_checkpoint(folder)
    assert path and path.name.startswith(f"step-{step:08}-")
    assert state and state["step"] == step and state["names"] == ["w", None] and state["w"].equal(state_of(step)["w"])


def test_the_last_two_are_kept_and_the_newest_is_read(folder: Path) -> None:
    assert_newest_is(10, folder)
    save_checkpoint(folder, 100, state_of(100))
    assert files(folder) == ["step00000010", "step00000100"]
    assert_newest_is(100, folder)


def test_where_there_is_none_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert newest_checkpoint(tmp_path) == newest_checkpoint(tmp_path / "nowhere") == (None, None)
    assert capsys.readouterr().out == "" and not (tmp_path / "nowhere").exists()


def test_one_that_lacks_its_end_or_has_one_wrong_bit_anywhere_is_read_right_or_named_and_the_one_before_is_used(
        folder: Path, capsys: pytest.CaptureFixture) -> None:
    _, newest = checkpoints.checkpoints(folder)
    data, named = newest.read_bytes(), 0
    values = data.index(state_of(10)["w"].numpy().tobytes())
    wrong = [data[:length] for length in range(0, len(data), 29)]
    wrong += [data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1:] for at in range(0, len(data), 3)]
    for bad in wrong:
        newest.write_bytes(bad)
        path, state = newest_checkpoint(folder)
        if path == newest:  # the bit is of the archive, as a date is, and not of the state
            assert digest_of(state) == digest_of(state_of(10)) and len(bad) == len(data)
            continue
        named += 1
        assert path == checkpoints.checkpoints(folder)[0] and state and state["step"] == 5
        assert capsys.readouterr().out.startswith(f"{newest.name} is not whole: its digest is ")
        assert set(files(folder)) == {"step00000005", f"{newest.stem}.broken"}
    assert 100 < named < len(wrong) and len(wrong) > 500
    for at in range(values, values + 48):  # each bit of the values counts
        newest.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
        assert newest_checkpoint(folder)[0] != newest
    newest.write_bytes(data)
    assert newest_checkpoint(folder)[0] == newest


def test_if_both_are_broken_there_is_none(folder: Path, capsys: pytest.CaptureFixture) -> None:
    for path in checkpoints.checkpoints(folder):
        path.write_bytes(b"")
    assert newest_checkpoint(folder) == (None, None)
    assert capsys.readouterr().out.count(" is not whole") == 2


def test_a_file_that_cannot_be_read_stays_where_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="the disk fails"):
        newest_checkpoint(folder)
    assert files(folder) == ["step00000005", "step00000010"]


class Evil:
    def __reduce__(self) -> tuple:
        return print, ("run",)


def test_what_would_not_be_read_back_is_refused_before_it_is_written(tmp_path: Path) -> None:
    for x in (Evil(), np.float64(1.5), np.zeros(3), tmp_path, {1}):
        with pytest.raises(ValueError, match=r"^state\['x'\]\[1\] is of <class '.*'>: nothing was saved, because a checkpoint is read back only if"):
            save_checkpoint(tmp_path, 1, {"x": [0, x]})
    assert list(tmp_path.iterdir()) == []


def test_no_code_of_a_file_is_run_and_the_one_before_is_used(folder: Path, capsys: pytest.CaptureFixture) -> None:
    torch.save({"x": Evil()}, folder / "step-00000015-9c56cc51b374c3ba.pt")
    assert_newest_is(10, folder)
    assert capsys.readouterr().out == "step-00000015-9c56cc51b374c3ba.pt is not whole: its digest is unknown (UnpicklingError)\n"
    assert (folder / "step-00000015-9c56cc51b374c3ba.broken").exists()


STATES = [{"x": torch.zeros(2)}, {"x": torch.tensor([0.0, -0.0])}, {"x": torch.zeros(2, 1)}, {"x": torch.zeros(2).bfloat16()}, {"x": torch.zeros(())},
          {"x": torch.zeros(0)}, {"x": torch.zeros(0, 3)}, {"y": torch.zeros(2)}, {"x": torch.zeros(2), "y": torch.zeros(1)}, {"x": [torch.zeros(2)]},
          {"x": 1}, {"x": 1.0}, {"x": True}, {"x": "1"}, {"x": None}, {}, {"x": torch.tensor([True, False])}, {"x": torch.zeros(2, dtype=torch.complex64)},
          {"x": torch.tensor([0.0, float("nan")])}, {"x": {1: "a"}}, {"x": {"1": "a"}}]


def test_digests_are_equal_for_equal_states_and_differ_where_anything_differs() -> None:
    digests = [digest_of(state) for state in STATES]
    assert len(set(digests)) == len(STATES) and all(re.fullmatch("[0-9a-f]{16}", digest) for digest in digests)
    assert [digest_of(copy.deepcopy(state)) for state in STATES] == digests
    w = torch.arange(6.0).view(2, 3)
    same = [{"a": w, "b": 1}, {"b": 1, "a": w}, {"a": nn.Parameter(w), "b": 1}, {"a": w.t().contiguous().t(), "b": 1},
            {"a": torch.cat([w, w])[2:], "b": 1}, OrderedDict(a=w, b=1)]
    assert len({digest_of(state) for state in same}) == 1


def test_the_digest_in_the_name_is_that_of_the_state_whichever_run_saved_it(tmp_path: Path) -> None:
    net = nn.BatchNorm1d(3)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "random": [torch.get_rng_state()]}
    save_checkpoint(tmp_path / "first", 1, state)
    path, found = newest_checkpoint(tmp_path / "first")
    assert path and found and path.name == f"step-00000001-{digest_of(state)}.pt"
    other = nn.BatchNorm1d(3)
    again = torch.optim.AdamW(other.parameters())
    other.load_state_dict(found["net"])
    again.load_state_dict(found["optimizer"])
    save_checkpoint(tmp_path / "second", 1, {"net": other.state_dict(), "optimizer": again.state_dict(), "random": found["random"]})
    assert files(tmp_path / "second") == files(tmp_path / "first") and (tmp_path / "second" / path.name).exists()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_refused_wherever_they_are_and_the_old_ones_stay(folder: Path, bad: float) -> None:
    state = state_of(15) | {"optimizer": [{"exp_avg": torch.tensor([[0.0, bad]], dtype=torch.float64)}]}
    with pytest.raises(ValueError, match=r"state\['optimizer'\]\[0\]\['exp_avg'\], of shape \(1, 2\), holds (NaN|infinity): nothing was saved"):
        save_checkpoint(folder, 15, state)
    with pytest.raises(ValueError, match=r"state\['w'\]"):
        save_checkpoint(folder, 15, state_of(15) | {"w": torch.tensor([1.0, 2.0, bad])})
    assert files(folder) == ["step00000005", "step00000010"]
    assert_newest_is(10, folder)


@pytest.mark.parametrize("bad, words", [
    (torch.tensor([complex(0, float("nan"))]), r", of shape \(1,\), holds NaN: nothing was saved"),
    (torch.tensor([complex(float("inf"), 0), 1]), r", of shape \(2,\), holds infinity: nothing was saved"),
    (torch.tensor([1, float("nan")]).to(torch.float8_e5m2), r", of shape \(2,\), holds NaN: nothing was saved"),
    (float("nan"), " is nan: nothing was saved"), (complex(float("nan"), 1), r" is \(nan\+1j\): nothing was saved")])
def test_nan_is_refused_in_complex_tensors_and_in_pythons_numbers_too(folder: Path, bad: Any, words: str) -> None:
    with pytest.raises(ValueError, match=rf"^state\['net'\]\[0\]{words}"):
        save_checkpoint(folder, 15, state_of(15) | {"net": [bad]})
    assert files(folder) == ["step00000005", "step00000010"]


def test_a_scheduler_whose_best_loss_is_still_infinite_is_saved(folder: Path) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).state_dict()
    assert scheduler["best"] == float("inf")
    save_checkpoint(folder, 15, state_of(15) | {"scheduler": scheduler})
    assert newest_checkpoint(folder)[1]["scheduler"] == scheduler


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # PyTorch's, of such tensors
@pytest.mark.parametrize("make, words", [
    (lambda: torch.eye(2).to_sparse(), "a sparse tensor, with the layout torch.sparse_coo"),
    (lambda: torch.eye(2).to_sparse_csr(), "a sparse tensor, with the layout torch.sparse_csr"),
    (lambda: torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)]), "a nested tensor"),
    (lambda: torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged), "NestedTensor"),
    (lambda: torch.zeros(2, device="meta"), "a tensor without values, on the device meta"),
    (lambda: torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8), "a quantized tensor"),
    (lambda: torch.zeros(2, dtype=torch.complex64).conj(), "a view that is conjugated or negated"),
    (lambda: torch.zeros(2, dtype=torch.complex64).conj().imag, "a view that is conjugated or negated")],
    ids=["sparse", "csr", "nested", "jagged", "meta", "quantized", "conjugated", "negated"])
def test_a_tensor_that_cannot_be_saved_is_named_by_its_key(folder: Path, make: Callable, words: str) -> None:
    with pytest.raises(ValueError, match=rf"^state\['net'\]\['odd'\] is .*{words}.*: nothing was saved"):
        save_checkpoint(folder, 15, {"net": {"w": torch.zeros(2), "odd": make()}})
    assert files(folder) == ["step00000005", "step00000010"]


def test_the_mask_of_a_transformer_is_saved_and_one_with_nan_is_not(folder: Path) -> None:
    mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
    save_checkpoint(folder, 15, state_of(15) | {"net": {"mask": mask}})
    _, state = newest_checkpoint(folder)
    assert state and state["net"]["mask"].equal(mask) and mask.isinf().any()
    mask[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"\['net'\]\['mask'\].* holds NaN.*persistent=False"):
        save_checkpoint(folder, 20, state_of(20) | {"net": {"mask": mask}})


def test_on_a_disk_that_takes_no_more_the_old_ones_stay_and_nothing_half_written(folder: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # a file can have no more bytes
    try:
        with pytest.raises(OSError) as caught:
            save_checkpoint(folder, 15, state_of(15))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert files(folder) == ["step00000005", "step00000010"]
    assert_newest_is(10, folder)


@pytest.mark.parametrize("to_what", ["a file", "nothing"])
def test_a_link_with_the_name_of_the_unfinished_file_is_not_followed(folder: Path, tmp_path: Path, to_what: str) -> None:
    target = tmp_path / "mine.txt"
    if to_what == "a file":
        target.write_text("mine")
    (folder / "unfinished").symlink_to(target)
    save_checkpoint(folder, 15, state_of(15))
    assert target.exists() == (to_what == "a file") and (to_what == "nothing" or target.read_text() == "mine")
    newest = checkpoints.checkpoints(folder)[-1]
    assert not newest.is_symlink() and not (folder / "unfinished").is_symlink()
    assert_newest_is(15, folder)


def taught(name: str) -> Any:
    """A function as its cell shows it, without the checks of the package."""
    source = inspect.getsource(getattr(checkpoints, name))
    scope = dict(vars(checkpoints))
    exec("\n".join(line for line in source.splitlines() if not line.endswith("# package only")), scope)
    return scope[name]


def test_a_step_before_that_of_a_checkpoint_is_refused_and_nothing_is_lost(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for step in (0, 9):
        with pytest.raises(ValueError, match=rf"^step-00000010-\w{{16}}\.pt in .*first is of a later step than {step}: nothing was saved"):
            save_checkpoint(folder, step, state_of(step))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_what_the_cell_has_just_written_it_does_not_delete(folder: Path) -> None:
    taught("save_checkpoint")(folder, 3, state_of(3))
    assert files(folder) == ["step00000003", "step00000005", "step00000010"]


def test_of_two_states_of_one_step_the_last_one_saved_counts(folder: Path) -> None:
    names = set()
    for w in range(4):  # some of these digests come before the others, and some after
        save_checkpoint(folder, 10, state_of(10) | {"w": torch.tensor(w)})
        path, state = newest_checkpoint(folder)
        assert path and state and state["w"] == w and files(folder) == ["step00000005", "step00000010"]
        names.add(path.name)
    assert len(names) == 4


def test_steps_are_numbers_also_where_one_has_a_digit_more(tmp_path: Path) -> None:
    for step in (99_999_998, 99_999_999, 100_000_000, 100_000_001, 1_000_000_000):
        save_checkpoint(tmp_path, step, {"step": step})
        path, state = newest_checkpoint(tmp_path)
        assert path and path.name.startswith(f"step-{step}-") and state == {"step": step}
    assert {*files(tmp_path)} == {"step100000001", "step1000000000"}


@pytest.mark.parametrize("step", [1.5, 2.0, -1, float("nan"), "3", None])
def test_a_step_that_is_no_count_is_named(tmp_path: Path, step: Any) -> None:
    with pytest.raises(ValueError, match=f"^step must be a whole number of at least 0, got {step}$"):
        save_checkpoint(tmp_path, step, {"x": 1})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_only_looks_like_a_checkpoint_is_neither_read_nor_moved_nor_deleted(folder: Path) -> None:
    for name in ("step-best.pt", "step-00000099-mine.pt", "step-7.pt"):
        (folder / name).write_text("mine")
    for step in (15, 20, 25):
        save_checkpoint(folder, step, state_of(step))
        assert_newest_is(step, folder)
    assert {path.name for path in folder.iterdir() if path.read_bytes() == b"mine"} == {"step-best.pt", "step-00000099-mine.pt", "step-7.pt"}


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_disk_that_fails_later_leaves_the_old_ones_too(folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(os, fails, fail)
    with pytest.raises(OSError, match="the disk fails"):
        save_checkpoint(folder, 15, state_of(15))
    assert files(folder) == ["step00000005", "step00000010"]
    assert_newest_is(10, folder)


def test_bytes_are_on_the_disk_before_the_file_has_its_name_and_then_the_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, fsync, replace = [], os.fsync, os.replace

    def synced(file: int) -> None:
        what = next(path for path in (folder, folder / "unfinished") if os.fstat(file).st_ino == path.stat().st_ino)
        assert what == folder or os.fstat(file).st_size > 1000
        fsync(file)
        done.append(f"fsync {what.name}")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *paths: done.append("replace") or replace(*paths))
    save_checkpoint(folder, 15, state_of(15))
    assert done == ["fsync unfinished", "replace", "fsync first"]


KILLED = """
import os, pathlib, resource, shutil, signal, sys
sys.path.insert(0, sys.argv[2])
from test_checkpoints import save_checkpoint, state_of

def die(*args, **named):
    os.kill(os.getpid(), signal.SIGKILL)

def in_the_write():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the system ends a process that writes more
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

def of_a_checkpoint():
    unlink = pathlib.Path.unlink
    pathlib.Path.unlink = lambda path, **named: die() if path.suffix == ".pt" else unlink(path, **named)

def at(place, name):
    setattr(place, name, die)

moments = {"write": in_the_write, "fsync": lambda: at(os, "fsync"), "replace": lambda: at(os, "replace"),
           "unlink": of_a_checkpoint}
for name, prepare in moments.items():
    folder = shutil.copytree(sys.argv[1], f"{sys.argv[1]}-{name}")
    if (child := os.fork()) == 0:
        prepare()
        save_checkpoint(folder, 15, state_of(15))
        os._exit(0)
    print(name, os.WTERMSIG(os.wait()[1]))
"""


def test_who_is_killed_at_any_moment_leaves_the_old_ones_or_the_new_one_whole(folder: Path, capsys: pytest.CaptureFixture) -> None:
    run = subprocess.run([sys.executable, "-c", KILLED, folder, Path(__file__).parent], capture_output=True, text=True, timeout=120)
    kill, too_large = int(signal.SIGKILL), int(signal.SIGXFSZ)
    assert run.stdout.split() == f"write {too_large} fsync {kill} replace {kill} unlink {kill}".split(), run.stderr
    for moment, step, left in (("write", 10, True), ("fsync", 10, True), ("replace", 10, True), ("unlink", 15, False)):
        of_moment = folder.with_name(f"{folder.name}-{moment}")
        assert (of_moment / "unfinished").exists() == left
        assert_newest_is(step, of_moment)
        save_checkpoint(of_moment, 20, state_of(20))  # what was left is no trouble
        assert files(of_moment) == [f"step{step:08}", "step00000020"]
    assert capsys.readouterr().out == ""
