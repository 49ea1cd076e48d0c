"""Tests of `watch`: scripts as people bring them are run as they are, and what is wrong is named with its line."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel.distributed import _DDPSink
from torch.utils.data import TensorDataset

import gate
import gate_watch
from d2lpar.__main__ import main
from d2lpar.diagnosis import scripts
from d2lpar.diagnosis.compare import Diagnosis, _where_they_stand, _words
from d2lpar.diagnosis.cuda import cuda_on_the_cpu
from d2lpar.diagnosis.evidence import SKETCHES, rounding, solve
from d2lpar.diagnosis.examples import _digest, keys_of_rows, probe, takes_the_end, with_rows
from d2lpar.diagnosis.judging import Ran, _judge_moves, judge
from d2lpar.diagnosis.loss_weights import watch_loss
from d2lpar.diagnosis.recording import Recorder, Step, Values, of_the_script
from d2lpar.diagnosis.rules import CURES_OF_PARTS
from d2lpar.diagnosis.scripts import NotRun, Progress, Run, _Elsewhere, _judge, watch, who_is_missing
from d2lpar.diagnosis.some_ranks import under_rank_test
from d2lpar.diagnosis.watching import Networks, Settings, Watcher, sketch

BUGS = str(Path(__file__).parent / "watch" / "bugs.py")


def command(*words: str, program: Sequence[str] = ("-m", "d2lpar", "watch"), cwd: str | Path | None = None,
            timeout_s: float = 120) -> subprocess.CompletedProcess:
    root = Path(__file__).parents[1]
    return subprocess.run([sys.executable, "-W", "ignore", *program, *words], capture_output=True, text=True,
                          cwd=cwd, timeout=timeout_s, env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"})


SOME = ("right", "set_epoch", "loss times", "clip", "no sampler", "BatchNorm", "EMA", "half the loss")


@pytest.mark.slow
def test_some_of_what_is_wrong_is_named_and_no_right_script_is_accused(root: Path):
    run = command("bugs", "--ranks", "2", "--only", *SOME, program=[str(root / "book" / "tools" / "gate_watch.py")])
    counts = re.findall(r"(\d+) of +(\d+)", run.stdout)
    assert run.returncode == 0 and len(counts) == 3, run.stdout + run.stderr
    assert all(right == every and int(every) > 2 for right, every in counts), run.stdout


@pytest.mark.weekly
def test_what_is_wrong_is_named_and_no_right_script_is_accused(root: Path):
    run = command("bugs", "--ranks", "2", program=[str(root / "book" / "tools" / "gate_watch.py")], timeout_s=400)
    counts = {words.strip(): (int(hits), int(n)) for words, hits, n in re.findall(r"^(\D+?) +(\d+) of +(\d+),", run.stdout, re.M)}
    kinds = Counter(case["is"] for case in gate_watch.of_bugs().values())
    assert run.returncode == 0 and counts == {
        "right scripts let through": (kinds["right"] - 1, kinds["right"]), "right, but not judged": (1, kinds["right"]),
        "wrong scripts found": (kinds["wrong"], kinds["wrong"]), "named by their cause": (kinds["wrong"], kinds["wrong"])}, run.stdout
    assert set(re.findall(r"^(.*) on 2 ranks, right: not judged", run.stdout, re.M)) == {"resumed"}


@pytest.mark.weekly
def test_a_wrong_scale_is_found_next_to_a_mistake_in_the_data():
    run = command(BUGS, "no set_epoch, sum over the batch")
    assert re.findall(r"^FAULT, (.*?):", run.stdout, re.M) == ["same order in every epoch", "divided twice"], run.stdout


# the command


@pytest.mark.slow
def test_a_fault_has_its_line_and_exit_code_1():
    run = command(BUGS, "no set_epoch")
    assert run.returncode == 1 and run.stderr == "", run.stderr
    assert "FAULT, same order in every epoch" in run.stdout and "for i, batch in" in run.stdout


@pytest.mark.weekly
def test_a_fault_that_is_allowed_is_a_note_and_json_says_so():
    run = command("--json", "--allow", "same order in every epoch", BUGS, "no set_epoch")
    found = json.loads(run.stdout)
    assert run.returncode == 0 and found["ok"] and [(one["name"], one["fault"]) for one in found["findings"]] == [("same order in every epoch", False)]


@pytest.mark.weekly
def test_ten_runs_of_one_script_say_the_same(tmp_path: Path):
    verdicts = []
    for _ in range(10):
        run = command("--json", BUGS, "no set_epoch, sum over the batch", cwd=tmp_path)
        verdicts.append({"code": run.returncode, **json.loads(run.stdout)})
        assert verdicts[-1].pop("seconds") > 0
    assert verdicts[0]["code"] == verdicts[0]["exit"] == 1 and len(verdicts[0]["findings"]) == 2
    assert all(verdict == verdicts[0] and list(verdict) == list(verdicts[0]) for verdict in verdicts)


@pytest.mark.slow
def test_parameters_in_parts_are_judged_like_whole_ones():
    run = command("--json", BUGS, "sharded, clipped")
    found = json.loads(run.stdout)
    assert run.returncode == 0 == found["exit"] and found["ok"] and found["findings"] == [], run.stdout
    assert {found["coverage"][name]["state"] for name in ("start", "exchange", "scale", "clipping", "update")} == {"judged"}


@pytest.mark.weekly
def test_torchrun_starts_the_ranks_if_the_user_prefers_that(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the script's network is on the CPU, for which NCCL has no group
    run = command("--nproc-per-node=2", "--standalone", "-m", "d2lpar", "watch", BUGS, "loss times the ranks",
                  program=("-m", "torch.distributed.run"))
    assert run.returncode == 1 and run.stdout.count("FAULT, loss multiplied by world size") == 1, run.stdout
    right = command("--nproc-per-node=2", "--standalone", "-m", "d2lpar", "watch", BUGS, "right",
                    program=("-m", "torch.distributed.run"))
    assert right.returncode == 0 and right.stdout.count("no fault found") == 1, right.stdout + right.stderr
    assert right.stdout.rstrip().endswith("\nexit code 0") and "\nexit code 1\n" in run.stdout


@pytest.mark.weekly
def test_the_run_as_a_single_process_is_on_the_kind_of_device_that_the_ranks_had(monkeypatch: pytest.MonkeyPatch):
    visible, start_rank = [], Run.start_rank

    def noting(self: Run, words: Sequence[str], env: dict[str, str], rank: int) -> None:
        visible.append(env.get("CUDA_VISIBLE_DEVICES", "all"))
        start_rank(self, words, env, rank)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(Run, "start_rank", noting)
    assert set(watch([BUGS, "loss times the ranks"]).faults) == {"loss multiplied by world size"}
    assert visible == ["", "", ""]


@pytest.mark.gpu
def test_with_fewer_gpus_than_ranks_a_wrong_factor_is_still_named():
    run = command("--ranks", str(torch.cuda.device_count() + 1), BUGS, "loss times the ranks")
    assert re.findall(r"^FAULT, (.*?):", run.stdout, re.M) == ["loss multiplied by world size"], run.stdout


@pytest.mark.gpu(2)
def test_on_gpus_the_script_keeps_its_own_backend_and_devices(root: Path):
    run = command("--show", str(root / "d2lpar" / "pages" / "stored" / "ring.py"))
    assert re.findall(r"^FAULT, (.*?):", run.stdout, re.M) == ["different data sets", "same order in every epoch"]


@pytest.mark.weekly
def test_a_script_that_cannot_be_run_is_no_verdict(tmp_path: Path):
    (tmp_path / "train.py").write_text("import torch.distributed as dist\ndist.init_process_group()\nraise OSError('no data')")
    (tmp_path / "idle.py").write_text("import torch.distributed as dist\ndist.init_process_group()")
    run = command("train.py", cwd=tmp_path)
    assert run.returncode == 2 and run.stdout == "" and "OSError: no data" in run.stderr and "line 3" in run.stderr
    idle = command("idle.py", cwd=tmp_path)
    assert idle.returncode == 2 and "took no step" in idle.stderr


def test_what_is_asked_for_wrongly_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # here SIGTERM means what it did
    for words, said in ((["nowhere.py"], "there is no file nowhere.py"), ([], "which script?"),
                        (["--allow", "everything", BUGS], "there is no finding 'everything'"),
                        (["--ranks", "0", BUGS], "ranks")):
        monkeypatch.setattr(sys, "argv", ["d2lpar", "watch", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert ended.value.code == 2 and said in printed.err and printed.out == "", printed


def test_an_error_is_said_once_if_the_output_shows_it_too():
    def why(error: str, output: str) -> str:
        with pytest.raises(NotRun) as refused:
            _judge(Ran(1, [[("end", {"error": error, "line": "", "enough": False, "asked": False})]], crashed=True, output=output), ["train.py"])
        return str(refused.value)

    said, broken = "the script ended before its first optimizer step:\n", 'File "net.py", line 1\n    f(\n     ^\nSyntaxError: \'(\' was never closed'
    assert why(broken, f"Traceback:\n{broken}") == f"{said}Traceback:\n{broken}"
    assert why(broken, f"    f(\n     ^\nSyntaxError: '(' was never closed\nrank 0\nTraceback (most recent call last):\n{broken}"
               ) == f"{said}Traceback (most recent call last):\n{broken}"
    assert why("SystemExit: 2", "train.py: error: no such option") == f"{said}SystemExit: 2\ntrain.py: error: no such option"


LOST, HERE_TOO = "RuntimeError: Connection closed by peer", "DistBackendError: a collective failed"
MISSING = "ModuleNotFoundError: No module named 'lightning'"


def ended(*errors: str, output: str = "") -> Ran:
    """A run on as many ranks, none of which took a step: how each ended, "" if it was killed."""
    records: list = [[("group", {"world_size": len(errors), "pid": 0}), *[("end", {
        "error": error, "line": "", "enough": False, "asked": [], "in_collective": error == HERE_TOO})] * bool(error)] for error in errors]
    return Ran(len(errors), records, crashed=True, output=output or "\n".join(errors))


@pytest.mark.parametrize("errors, said", [
    (("KeyError: 'x'", "KeyError: 'x'"), "KeyError: 'x'"), (("URLError: no network", LOST), "URLError: no network"),
    (("TypeError: of rank 0", "TypeError: of rank 1"), "TypeError: of rank 0"), (("KeyError: 'x'", ""), "KeyError: 'x'"),
    ((HERE_TOO, MISSING), MISSING), ((HERE_TOO, HERE_TOO), HERE_TOO), ((HERE_TOO, "KeyError: 'x'"), None), (("", "KeyError: 'x'"), None),
    (("FileExistsError: runs", LOST), None), ((LOST, "OSError: no space"), None), ((HERE_TOO, LOST), None)])
def test_an_error_before_the_first_step_is_a_fault_only_if_a_single_process_would_not_meet_it(errors: tuple[str, ...], said: str | None):
    if said is None:
        assert list(_judge(ended(*errors), ["train.py"])[0].faults) == ["raises"]
    else:
        with pytest.raises(NotRun, match=f"^the script ended before its first optimizer step:\n(?s:.*){said}"):
            _judge(ended(*errors), ["train.py"])


@pytest.mark.parametrize("run, runs", [
    (ended(MISSING, MISSING), 1), (ended("TypeError: x", "TypeError: x", output='  File "/gpu/train.py", line 1\n    f(x)\nTypeError: x'), 1),
    (ended("OSError: x", "OSError: x", output='  File "train.py", line 1\n    torch.cuda.f()\nOSError: x'), 2),
    (ended("RuntimeError: Found no NVIDIA driver", LOST), 2), (ended(LOST, "KeyError: 'x'"), 2),
    (ended("SystemExit: it belongs to a run on cuda", "SystemExit: it belongs to a run on cuda", output="what it printed"), 2)], ids=str)
def test_a_script_that_fails_is_run_again_only_if_the_error_may_be_of_gpus(run: Ran, runs: int, monkeypatch: pytest.MonkeyPatch):
    done = []
    monkeypatch.setattr(scripts, "run_watched", lambda *args, **kwargs: done.append(kwargs) or run)
    with suppress(NotRun):
        scripts._run(["train.py"], 2)
    assert len(done) == runs


def test_a_script_that_prints_its_help_is_no_verdict_and_training_without_a_group_is():
    end = "end", {"error": "", "line": "", "enough": False, "asked": []}
    with pytest.raises(NotRun, match="took no step .* ends with:\nusage: train.py"):
        _judge(Ran(2, [[end], [end]], output="usage: train.py [-h]"), ["train.py"])
    assert list(_judge(Ran(2, [[("step", {}), end]] * 2), ["train.py"])[0].faults) == ["no group"]


def test_the_error_of_a_rank_is_noted_and_whether_a_collective_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    watcher, noted = Watcher(Settings(str(tmp_path), 2, 0, False, True, True)), []
    monkeypatch.setattr(watcher, "end", lambda error, **how: noted.append((error.partition(":")[0], how["in_collective"])))
    for function in ({}.__getitem__, dist.get_world_size, len):
        with suppress(KeyError, ValueError):
            watcher._failing(lambda x, f=function: f(x))(dist.group.WORLD if function is dist.get_world_size else "x")
    assert noted == [("KeyError", False), ("ValueError", True)]


def test_pretended_gpus_have_every_statistic_of_memory():
    with cuda_on_the_cpu(0, 2, pretend=True):
        assert torch.cuda.memory_stats(0)["allocated_bytes.all.current"] == 0 and torch.cuda.memory_summary() == "no GPU"


@pytest.mark.parametrize("grows, looks", [(False, 1), (True, 0)])
def test_the_cpu_time_is_looked_at_once_a_second_while_nothing_is_recorded(grows: bool, looks: int, monkeypatch: pytest.MonkeyPatch):
    done = []
    monkeypatch.setattr(Run, "_work_s", lambda self: done.append(self) or 0.0)
    with Run(1, show=False) as run:
        class Busy(_Elsewhere):
            def poll(self) -> int | None:
                with open(run.folder / "0.records", "ab") as file:
                    file.write(pickle.dumps(("a record", {})) * grows)
                return None if time.monotonic() < end else 0

        run.processes, end = [Busy(run.folder, 0)], time.monotonic() + 1.6
        run.attend()
    assert len(done) == looks


@pytest.mark.parametrize("joining, others, idle_s, missing", [
    ([(0, 2)], 0, 11, [0]), ([(0, 2)], 1, 11, []), ([(0, 2)], 1, 61, [0]), ([(1, 2), (0, 2)], 0, 61, []), ([(0, 2), (0, 2)], 0, 11, [0, 0]),
    ([(1, 4), (0, 4)], 0, 11, [0, 1]), ([], 2, 61, [])], ids=str)
def test_a_group_that_never_becomes_complete_is_seen(joining: list[tuple[int, int]], others: int, idle_s: float, missing: list[int]):
    with Run(2, show=False) as run:
        for pid, (rank, world_size) in enumerate(joining):
            (run.folder / f"{pid}.joining").write_text(json.dumps({"rank": rank, "world_size": world_size, "line": ""}))
        for pid in range(len(joining) + others):
            (run.folder / f"{pid}.begun").touch()
        assert [given["rank"] for given in run._incomplete_group(idle_s)] == missing
        run.processes, run.spawns = [_Elsewhere(run.folder, 0)], True  # a process that has started the ranks and waits for them
        (run.folder / "0.pid").write_text("99")
        (run.folder / "99.begun").touch()
        assert [given["rank"] for given in run._incomplete_group(idle_s)] == missing


def test_the_message_about_an_incomplete_group_says_how_to_start_the_script():
    joining = [{"rank": 0, "world_size": 2, "line": "train.py, line 8: `init()`"}]
    said = who_is_missing(joining, ["train.py", "--nodes", "2", "--nr", "0", "--name", "my run"])
    assert said.startswith("rank 0 waited in init_process_group for 2 ranks, and no other process called it [train.py, line 8: `init()`].")
    assert said.endswith(": watch train.py --nodes 2 --nr {rank} --name 'my run'")
    assert who_is_missing(joining, ["train.py", "0", "2"]).endswith("number of the node or of the rank by {rank}")
    assert "Let --ranks be" in who_is_missing(joining, ["train.py", "{rank}"])


NODES = """
import argparse, os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

def train(gpu, args):
    rank = args.nr * args.gpus + gpu
    dist.init_process_group(backend="nccl", init_method="env://", world_size=args.gpus * args.nodes, rank=rank)
    torch.manual_seed(rank)
    net = DDP(torch.nn.Linear(3, 1).cuda(gpu), device_ids=[gpu])
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(3):
        opt.zero_grad()
        (net if args.net == "net" else net.module)(torch.randn(8, 3).cuda(gpu)).square().mean().backward()
        opt.step()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--nodes", "--gpus", "--nr"):
        parser.add_argument(option, type=int)
    parser.add_argument("--net")
    args = parser.parse_args()
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "10.57.23.164", "8888"
    mp.spawn(train, nprocs=args.gpus, args=(args,))
"""


@pytest.mark.weekly
def test_a_script_for_several_nodes_that_starts_its_ranks_itself_is_started_once_for_each(tmp_path: Path):
    (tmp_path / "train.py").write_text(NODES)
    alone = command("train.py", "--net", "net", "--nodes", "2", "--gpus", "1", "--nr", "0", cwd=tmp_path, timeout_s=60)
    assert alone.returncode == 2 and "rank 0 waited in init_process_group for 2 ranks" in alone.stderr, alone.stdout + alone.stderr
    for nodes, gpus, net in ((2, 1, "net"), (2, 2, "module"), (1, 2, "module")):
        words = ["--net", net, "--nodes", str(nodes), "--gpus", str(gpus), "--nr", "{rank}" if nodes > 1 else "0"]
        run = command("train.py", *words, cwd=tmp_path)
        assert f"on {nodes * gpus} ranks" in run.stdout, run.stdout + run.stderr
        assert re.findall("FAULT, (.*?):", run.stdout) == ["DDP bypassed"] * (net == "module"), run.stdout


ON_SOME = """
for X in loader:
    if rank == 0:
        print(X)
        dist.all_reduce(X)
    if step % 10 == 0:
        dist.reduce(X, 0)
    if args.local_rank != -1 and args.world_size > 1:
        dist.all_gather(out, X)
    if rank != 0:
        dist.barrier()
    if dist.get_rank() == 0:
        print(evaluate(
            net))
        dist.barrier()
    if is_main_process():
        dist.broadcast(X, 0)
    else:
        dist.broadcast(Y, 0)
        net(X)
    if rank < 2:
        dist.reduce_scatter(X, Xs, group=first_two)
        dist.send(X, 1)
    if os.environ["LOCAL_RANK"] == "0" and step == 3:
        for p in net.parameters():
            dist.all_reduce(p.grad)
"""


@pytest.mark.parametrize("code, under", [
    ("print(X)", "`if rank == 0` in line 3"), ("dist.all_reduce(X)", ""), ("dist.reduce(X, 0)", ""), ("dist.all_gather(out, X)", ""),
    ("dist.barrier()", ""), ("net))", "`if dist.get_rank() == 0` in line 12"), ("dist.broadcast(X, 0)", ""), ("dist.broadcast(Y, 0)", ""),
    ("        net(X)", "the else of `if is_main_process()` in line 16"), ("dist.reduce_scatter", ""), ("dist.send", ""), ("for X in loader:", "")])
def test_a_line_that_only_some_ranks_reach_is_seen_by_the_if_around_it(code: str, under: str, tmp_path: Path):
    """A call that stands under two different tests may be made by all ranks."""
    (file := tmp_path / "train.py").write_text(ON_SOME)
    line = next(i for i, text in enumerate(ON_SOME.split("\n"), 1) if code in text)
    assert under_rank_test([(str(file), 1), (str(file), line)]) == f", under {under}" * bool(under)
    file.with_name("new.py").write_text(ON_SOME.replace("            dist.all_reduce(p.grad)", "            p.grad.zero_()"))
    line = ON_SOME[:ON_SOME.index("dist.all_reduce(X)")].count("\n") + 1
    assert under_rank_test([(str(file.with_name("new.py")), line)]) == ", under `if rank == 0` in line 3"


@pytest.mark.parametrize("stands, cause", [
    ("rank 0 is at `dist.all_reduce(x)`, line 12 of t.py, under `if rank == 0` in line 11; rank 1 is at `loss.backward()`, line 20 of t.py",
     "The collective at line 12 is under `if rank == 0` in line 11, so only some ranks call it."),
    ("rank 0 is at `f(x)`, line 7 of t.py; rank 1 is at `g(x)`, line 12 of t.py, under the else of `if rank == 0` in line 11",
     "The collective at line 12 is under the else of `if rank == 0` in line 11, so only some ranks call it."),
    ("rank 0 is at `f(x)`, line 7 of t.py; rank 1 is at `g(x)`, line 12 of t.py", "All ranks must call the same collectives"),
    ("; ".join(f"rank {r} is at `f(x)`, line 7 of t.py, under `if rank < 2` in line 6" for r in range(2)), "All ranks must call")])
def test_ranks_that_wait_under_an_if_on_the_rank_are_told_so(stands: str, cause: str):
    for ran in (Ran(2, [[("group", {})]] * 2, stands=stands),
                Ran(2, [[("group", {})]] * 2, crashed=True, output="SIGABRT", lines=stands.replace(" is at `", " `").split("; "))):
        found = Diagnosis("a run", watched=True)
        judge(ran, found)
        assert cause in found.faults["hangs" if ran.stands else "different collectives"], found


@pytest.mark.parametrize("callers, cause", [([0], "The collective at line 16 is under `if rank == 0` in line 14, so"), ([0, 1], "All ranks must"),
                                            ([], "All ranks must")])
def test_a_collective_that_only_some_ranks_called_is_the_cause_even_if_they_wait_later(callers: list[int], cause: str):
    place = "on some ranks", {"place": "line 16 is under `if rank == 0` in line 14"}
    found = Diagnosis("a run", watched=True)
    stands = "rank 0 is at `loss.backward()`, line 12 of t.py; rank 1 is at `loss.backward()`, line 12 of t.py"
    judge(Ran(2, [[("group", {}), *[place] * (r in callers)] for r in range(2)], stands=stands), found)
    assert cause in found.faults["hangs"]


def test_a_network_that_is_cast_after_wrapping_is_noted_and_one_that_stays_as_it_is_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    watcher, net, other, noted = Watcher(Settings(str(tmp_path), 1, 0, False, True, True)), nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2), []
    monkeypatch.setattr(nn.Module, "_apply", watcher._applying(nn.Module._apply))
    monkeypatch.setattr(nn.Module, "cpu", watcher._moving_to_the_cpu(nn.Module.cpu))
    monkeypatch.setattr(watcher.log, "note", lambda kind, **data: noted.append((kind, data["pretended"])))
    net.double().float()
    watcher.wrapped_names = {id(p): name for name, p in net.named_parameters()}
    net.to("cpu").to(torch.float32).cpu().apply(lambda module: None), other.double()
    assert noted == []
    net[0].double()
    assert noted == [("moved", False)]
    watcher.asked.add(".cuda()")
    net.cpu(), other.cpu()
    assert noted == [("moved", False), ("moved", True)]


@pytest.mark.parametrize("symptom, pretended, steps, faults, notes", [
    ("DDP bypassed", False, 0, ["moved or cast after wrapping"], []), ("not exchanged", False, 0, ["moved or cast after wrapping"], []),
    (None, False, 0, [], []), ("NaN", False, 0, ["NaN"], []), (None, True, 1, ["moved or cast after wrapping"], []), (None, True, 2, [], [])])
def test_what_is_cast_after_wrapping_is_the_cause_if_gradients_are_not_exchanged(
        symptom: str | None, pretended: bool, steps: int, faults: list[str], notes: list[str]):
    found = Diagnosis("a run", watched=True)
    if symptom:
        found.add(symptom, "a finding")
    moved = "moved", {"line": "t.py, line 3: `net.double()`", "steps": steps, "pretended": pretended}
    _judge_moves(Ran(2, [[moved, ("step", {}), ("step", {})]] * 2), found)
    assert (list(found.faults), list(found.notes)) == (faults, notes)
    assert symptom not in ("DDP bypassed", "not exchanged") or "[t.py, line 3: `net.double()`]. DDP lost its hooks" in found.faults[faults[0]]


CAST = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
if sys.argv[1] == "before":
    net.double().float()
net = DDP(net)
if sys.argv[1] == "after":
    net.double().float()
net.to("cpu")
opt = torch.optim.SGD(net.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for step in range(6):
    opt.zero_grad()
    net(torch.randn(8, 3)).square().mean().backward()
    opt.step()
    if sys.argv[1] == "rank 0 sums" and dist.get_rank() == 0 and step == 3:
        dist.all_reduce(torch.zeros(100))
"""


@pytest.mark.weekly
def test_a_cast_after_wrapping_and_a_collective_under_an_if_on_the_rank_are_named_in_a_script(tmp_path: Path):
    (tmp_path / "train.py").write_text(CAST)
    assert command("train.py", "before", cwd=tmp_path).returncode == 0
    after = command("train.py", "after", cwd=tmp_path).stdout
    assert re.findall("FAULT, (.*?):", after) == ["moved or cast after wrapping"] and "train.py, line 12" in after, after
    alone = " ".join(command("train.py", "rank 0 sums", cwd=tmp_path).stdout.split())
    assert "The collective at line 21 is under `if sys.argv[1] == 'rank 0 sums'" in alone and "so only some ranks call it" in alone, alone


# cures: each is followed, and then there is no fault

CURES = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(self.a(x))


def change(net):
    if sys.argv[1] == "frozen":
        net.a.requires_grad_(False)
    elif sys.argv[1] == "replaced":
        net.a = nn.Linear(8, 8)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
if "first" in sys.argv:
    change(net)
model = DDP(net, find_unused_parameters="found" in sys.argv)
if "first" not in sys.argv:
    change(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for step in range(4):
    opt.zero_grad()
    model(torch.randn(8, 8)).square().mean().backward()
    opt.step()
"""


@pytest.mark.weekly
@pytest.mark.parametrize("kind, cure, words", [
    ("frozen", "found", "Pass find_unused_parameters=True to DDP"), ("frozen", "first", "freeze or tie them before wrapping"),
    ("replaced", "first", "replace them first, and then wrap the network")])
def test_what_to_do_about_unused_parameters_helps(kind: str, cure: str, words: str, tmp_path: Path):
    (tmp_path / "train.py").write_text(CURES)
    wrong = command("train.py", kind, cwd=tmp_path)
    assert wrong.returncode == 1 and words in " ".join(wrong.stdout.split()), wrong.stdout
    cured = command("train.py", kind, cure, cwd=tmp_path)
    assert cured.returncode == 0, cured.stdout
    useless = command("train.py", "replaced", "found", cwd=tmp_path)
    assert kind == "frozen" or useless.returncode == 1, "that is why it is not recommended"


def test_every_cure_for_parameters_in_parts_is_followed_in_a_right_script(root: Path):
    bugs, third = gate_watch.of_bugs(), gate.cases(root / "tests" / "watch" / "third_round")
    followed = {"not synchronised": ("sharded over one rank", "sharded"), "not exchanged": ("sharded, head left out", "sharded"),
                "backward pass not exchanged": ("sharded, first pass sent", "sharded, accumulated"),
                "different start": ("sharded_02_wrong", "sharded_02_right")}
    assert followed.keys() == CURES_OF_PARTS.keys()
    for name, (wrong, cured) in followed.items():
        assert (bugs | third)[cured]["is"] == "right" and (bugs | third)[wrong]["is"] == "wrong"
        assert wrong in third or bugs[wrong]["names"][0] == name


class Terminal(io.StringIO):
    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.is_one = is_one

    def isatty(self) -> bool:
        return self.is_one


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_how_far_the_script_is_and_a_file_does_not(is_terminal: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", shown := Terminal(is_terminal))
    now = [100.0]
    monkeypatch.setattr(scripts.time, "monotonic", lambda: now[0])
    progress = Progress("watching train.py on 2 ranks")
    for seconds, steps in ((1.9, 0), (2.1, 1), (2.9, 7), (3.2, 12)):
        now[0] = 100 + seconds
        progress.say(steps)
    progress.erase()
    lines = shown.getvalue().split("\r")
    assert [line.strip() for line in lines if line.strip()] == [
        "watching train.py on 2 ranks: 1 step so far", "watching train.py on 2 ranks: 12 steps so far"] * is_terminal
    assert lines[-1] == "" and lines[-2:-1] == [" " * len("watching train.py on 2 ranks: 12 steps so far")] * is_terminal


@pytest.mark.parametrize("show, json, shown", [(False, False, True), (True, False, False), (False, True, False)])
def test_progress_is_left_out_with_show_and_json(show: bool, json: bool, shown: bool, monkeypatch: pytest.MonkeyPatch):
    seen = []
    monkeypatch.setattr(Run, "start", lambda self, *_: seen.append(self.progress is not None))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # here SIGTERM means what it did
    monkeypatch.setattr(sys, "argv", ["d2lpar", "watch", *["--show"] * show, *["--json"] * json, BUGS, "right"])
    with pytest.raises(SystemExit):
        main()
    assert set(seen) == {shown}


@pytest.mark.parametrize("text, wanted", [("import os\nrank = int(os.environ['SLURM_PROCID'])", True), ("import torch", False)])
def test_the_variables_of_slurm_are_set_for_a_script_that_names_one(text: str, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "train.py").write_text(text)
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(Run, "start_rank", lambda self, words, env, rank: seen.append({name: env[name] for name in env if name.startswith("SLURM_")}))
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    with Run(2, show=False) as run:
        run.start([str(tmp_path / "train.py")], Settings(str(run.folder), 2, 0, True, False, False), 2)
    assert [env.get("SLURM_PROCID") for env in seen] == [env.get("SLURM_LOCALID") for env in seen] == (["0", "1"] if wanted else [None] * 2)
    assert all(env.get("SLURM_NTASKS") == "2" and "SLURM_JOB_NODELIST" in env if wanted else env == {} for env in seen)


def test_a_script_in_a_folder_called_torch_is_not_taken_for_pytorch():
    assert of_the_script(f"{os.sep}home{os.sep}torch{os.sep}train.py") and not of_the_script(torch.nn.functional.__file__)
    assert not scripts.WAITS.match(f"{os.sep}home{os.sep}torch{os.sep}train.py") and scripts.WAITS.match(dist.distributed_c10d.__file__)
    assert not scripts.WAITS.match(torch.hub.__file__)
    stand = f'rank 1: at\n  File "{dist.__file__}", line 1 in wait\n    wait()\n  File "/a/torch/train.py", line 2 in train\n    f(x)\n'
    assert _where_they_stand(TimeoutError(f"after 2.0 s\n\n{stand}")) == "after 2 s: rank 1 stands in `f(x)`, line 2 of train.py"


def test_a_verdict_does_not_speak_of_fn():
    assert _words(RuntimeError("rank 1 was killed by SIGKILL before fn had returned\n\n")) == "rank 1 was killed by SIGKILL before train had ended"


@pytest.mark.weekly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_is_left_of_a_watch_that_is_killed(tmp_path: Path):
    root = Path(__file__).parents[1]
    (tmp_path / "train.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)")
    watch = subprocess.Popen([sys.executable, "-m", "d2lpar", "watch", "train.py"], cwd=tmp_path, stdout=subprocess.DEVNULL,
                             env={**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path)})
    folders: list[Path] = []
    until = time.monotonic() + 60
    while time.monotonic() < until and not any("here" in file.read_text() for folder in folders
                                               for file in folder.glob("1.output")):
        folders = list(tmp_path.glob("d2lpar-watch-*"))
        time.sleep(0.1)
    assert folders and ranks_in(tmp_path)
    watch.send_signal(signal.SIGKILL)
    watch.wait()
    while time.monotonic() < until and (ranks_in(tmp_path) or folders[0].exists()):
        time.sleep(0.1)
    assert not ranks_in(tmp_path) and not folders[0].exists()


def ranks_in(folder: Path) -> list[str]:
    """The processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder and (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(process.name)
        except OSError:
            continue
    return found


AFTERWARDS = """
import json, os, sys, torch
from torch import nn, optim
from torch.nn.modules import module
from torch.optim import optimizer
from torch.utils.data import DataLoader, TensorDataset

def hooked():
    patched = [nn.Module.__call__, optim.Optimizer.add_param_group, torch.autograd.backward, DataLoader.__iter__,
               torch.save, torch.amp.GradScaler.scale, nn.utils.clip_grad_norm_, torch.distributed.all_reduce,
               nn.utils.clip_grad_value_, torch.compile, torch.amp.GradScaler.unscale_]
    return (list(map(repr, patched)), len(optimizer._global_optimizer_pre_hooks), len(optimizer._global_optimizer_post_hooks),
            len(module._global_module_registration_hooks))

before = hooked()
from d2lpar.diagnosis import watching
settings = watching.Settings(sys.argv[1], 1, 0, True, True, False)
watcher = watching.Watcher(settings)
watcher.start()
assert hooked() != before
import torch.distributed as dist
dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
net = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
opt = optim.SGD(net.parameters(), 0.1)
data = TensorDataset(torch.randn(8, 3))
for epoch in range(3):
    for X, in DataLoader(data, 4):
        opt.zero_grad()
        net(X).square().mean().backward()
        opt.step()
    if epoch == 1:
        assert watcher.num_steps == 4
assert watcher.num_steps == 4  # the third epoch is not watched
assert hooked() == before, (hooked(), before)
assert not any(p._backward_hooks for p in net.parameters()) and not net._forward_pre_hooks and not net.module._forward_pre_hooks
assert not opt._optimizer_step_pre_hooks
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_no_hook_is_left_when_enough_was_seen(tmp_path: Path):
    (tmp_path / "afterwards.py").write_text(AFTERWARDS)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "RANK": "0", "WORLD_SIZE": "1"}
    run = subprocess.run([sys.executable, "-W", "ignore", "afterwards.py", str(tmp_path)], cwd=tmp_path, env=env,
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


SAVES = """
import glob, os, shutil, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group()
net = DDP(torch.nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
data = TensorDataset(torch.randn(64, 3, generator=torch.Generator().manual_seed(0)))
sampler = DistributedSampler(data)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for X, in DataLoader(data, 8, sampler=sampler):
        opt.zero_grad()
        loss = net(X).square().mean()
        loss.backward()
        opt.step()
    plateau.step(loss.item())
    if dist.get_rank() == 0:
        torch.save(obj=epoch, f="old.pt")
        torch.save(epoch, "new.pt")
        torch.save(epoch, "whole.tmp")
        os.replace(src="whole.tmp", dst="whole.pt")
        shutil.copyfile("new.pt", "best.pt")
        torch.save(epoch, "link.pt")
        with open("file.pt", "wb") as file:
            torch.save(epoch, file)
        with open("log.csv", "a") as file:
            print(epoch, file=file)
        torch.save(epoch, f"step-{epoch}.pt")
        for old in sorted(glob.glob("step-*.pt"))[:-2]:
            os.remove(old)
        shutil.rmtree("folder", ignore_errors=True)
        os.makedirs("folder")
        torch.save(epoch, "folder/net.pt")
        if epoch == 0:
            os.rename("last", "last-but-one")
            with open("last-but-one/net.pt", "wb") as file:
                file.write(b"written over after the move")
    dist.barrier()
"""


def contents(folder: Path) -> dict[str, str]:
    """The files in a folder, and where links lead."""
    return {str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_text("latin1")
            for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("end", ["by itself", *(pytest.param(end, marks=pytest.mark.weekly) for end in ("terminated", "killed"))])
def test_files_that_the_script_changes_are_put_back_and_each_ranks_own_plateau_is_found(tmp_path: Path, end: str):
    ends_itself = end == "by itself"
    (tmp_path / "train.py").write_text(SAVES if ends_itself else SAVES.replace("    dist.barrier()", "    time.sleep(600)").replace(
        "import glob", "import time, glob"))
    for name in ("old.pt", "whole.pt", "best.pt", "target.pt", "file.pt", "log.csv", "step--1.pt", "folder/net.pt", "last/net.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name} of an earlier run")
    (tmp_path / "link.pt").symlink_to("target.pt")
    (tmp_path / "old.pt.before-d2lpar-watch-killed").write_text("of a watch that was killed long ago")
    before = contents(tmp_path)
    if ends_itself:
        run = command("train.py", cwd=tmp_path)
        assert run.returncode == 1 and list(re.findall(r"FAULT, (.*?):", run.stdout)) == ["different learning rates"], run.stdout
        assert "`plateau.step(loss.item())`" in run.stdout.replace("\n    ", " ")
    else:
        watch = subprocess.Popen([sys.executable, "-m", "d2lpar", "watch", "train.py"], cwd=tmp_path, stdout=subprocess.DEVNULL,
                                 env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
        until = time.monotonic() + 60
        while time.monotonic() < until and not (tmp_path / "last-but-one").exists():
            time.sleep(0.05)
        assert (tmp_path / "last-but-one").exists()
        watch.send_signal(signal.SIGTERM if end == "terminated" else signal.SIGKILL)
        watch.wait()
        while time.monotonic() < until and (list(tmp_path.glob(".before-d2lpar-watch-*")) or (tmp_path / "last-but-one" / "net.pt").exists()):
            time.sleep(0.05)
    assert contents(tmp_path) == before


@pytest.mark.weekly
def test_with_to_the_end_the_script_keeps_what_it_saves(tmp_path: Path):
    (tmp_path / "train.py").write_text(SAVES.replace('if epoch == 0:', "if False:"))
    (tmp_path / "old.pt").write_text("of an earlier run")
    run = command("--to-the-end", "train.py", cwd=tmp_path)
    assert run.returncode == 1 and [torch.load(tmp_path / name) for name in ("old.pt", "whole.pt", "best.pt")] == [2, 2, 2]


# a right script, with what scripts also do: a lazily opened data set with workers, a process pool before the group, a trial
# of a network that is thrown away, streams of a GPU, a feature pass that counts its examples
UNUSUAL = """
import os, sys, torch, torch.distributed as dist
from concurrent.futures import ProcessPoolExecutor
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Lazy(Dataset):
    file = None

    def __len__(self):
        return 320

    def __getitem__(self, i):
        self.file = self.file or open(__file__)
        return torch.full((3,), float(i))

def main():
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(abs, -1).result() == 1
    dist.init_process_group("nccl")
    dist.new_group(backend="nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.nn.Linear(3, 1)(torch.ones(2, 3))
    assert os.path.isabs(__file__) and torch.cuda.get_rng_state().numel()
    torch.manual_seed(0)
    net = torch.compile(torch.nn.Linear(3, 1).cuda(rank))._orig_mod
    net = DDP(net, device_ids=[rank])
    opt = torch.optim.SGD(net.parameters(), 1e-5)
    opt.add_param_group(param_group={"params": [torch.zeros(1, requires_grad=True)]})
    data = Lazy()
    for X in DataLoader(Lazy(), 16):
        X.record_stream(torch.cuda.current_stream())
    assert len(torch.cat([X for X in DataLoader(Lazy(), 16)])) == 320
    sampler = DistributedSampler(data)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for X in DataLoader(data, 16, sampler=sampler, num_workers=1, multiprocessing_context="spawn"):
            opt.zero_grad()
            net(X.to(rank)).mean().backward()
            opt.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


@pytest.mark.weekly
def test_a_right_script_may_do_unusual_things(tmp_path: Path):
    (tmp_path / "train.py").write_text(UNUSUAL)
    run = command("train.py", cwd=tmp_path)
    assert run.returncode == 0 and "no fault found" in run.stdout, run.stdout + run.stderr
    assert "only GPUs show" in run.stdout or torch.cuda.device_count() > 1


@pytest.mark.weekly
def test_a_script_that_starts_torchrun_or_uses_data_parallel_is_told_so(tmp_path: Path):
    (tmp_path / "launch.py").write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'torch.distributed.run', 'train.py'])")
    run = command("launch.py", cwd=tmp_path)
    assert run.returncode == 2 and "watch the script in that command" in run.stderr, run.stderr
    (tmp_path / "parallel.py").write_text("import torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 1))\n"
                                          "opt = torch.optim.SGD(net.parameters(), 0.1)\n"
                                          "net(torch.ones(4, 2)).sum().backward()\nopt.step()")
    run = command("parallel.py", cwd=tmp_path)
    assert run.returncode == 2 and "nn.DataParallel, in a single process" in run.stderr, run.stdout + run.stderr


# how PyTorch is replaced


SIGNATURES = """
import inspect, sys
from unittest import mock

replaced, replace = [], mock.patch.object

def noting(owner, name, new, *args, **kwargs):
    replaced.append((owner, name, getattr(owner, name)))
    return replace(owner, name, new, *args, **kwargs)

mock.patch.object = noting
from d2lpar.diagnosis import watching
watcher = watching.Watcher(watching.Settings(sys.argv[1], 2, 1, True, False, False))
watcher.start()
assert len(replaced) > 80 and {"__init__", "clip_grad_value_", "all_reduce", "save"} < {name for _, name, _ in replaced}
for owner, name, old in replaced:
    new = getattr(owner, name)
    if inspect.isroutine(old) and inspect.isfunction(new):
        try:
            wanted = inspect.signature(old)
        except ValueError:  # a function in C that does not say
            continue
        assert inspect.signature(new) == wanted and new.__name__ == old.__name__, (owner, name, inspect.signature(new), wanted)
"""


def test_every_function_that_is_replaced_keeps_its_signature(tmp_path: Path):
    (tmp_path / "signatures.py").write_text(SIGNATURES)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "RANK": "0", "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run([sys.executable, "-W", "ignore", "signatures.py", str(tmp_path)], cwd=tmp_path, env=env,
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


def drawn_by(source: str, file: str, **names: Any) -> list[bool]:
    """Whether each batch that this code draws may be the last one."""
    found: list[bool] = []

    class Batches:
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            found.append(takes_the_end(sys._getframe(1)))
            if len(found) > 1:
                raise StopIteration
            return 1

    with contextlib.suppress(StopIteration, RuntimeError):
        exec(compile(textwrap.dedent(source), file, "exec"), {"batches": Batches(), **names})
    return found[:1]


@pytest.mark.parametrize("source, takes", [
    ("for x in batches: pass", True),
    ("list(batches)", False), ("next(batches)", False),
    ("def f():\n while True:\n  yield from batches\nnext(f())", False),  # which may count them
    ("def f():\n for x in batches: yield x\nfor x in f(): pass", False),
    ("try: next(batches)\nexcept StopIteration: pass", True),
    ("def f():\n try: next(batches)\n except StopIteration: pass\nf()", True),
], ids=repr)
def test_an_epoch_is_shortened_only_where_its_end_is_expected(source: str, takes: bool):
    assert drawn_by(source, "train.py") == [takes]


LIBRARY = "def each(batches):\n it = iter(batches)\n while True:\n  try: x = next(it)\n  except StopIteration: return\n  yield x\n"


@pytest.mark.parametrize("source, takes", [("for x in each(batches): pass", True), ("next(each(batches))", False),
                                           ("def f():\n for x in each(batches): yield x\nfor x in f(): pass", False)], ids=repr)
def test_a_trainers_generator_hands_the_end_on_to_the_scripts_own_loop(source: str, takes: bool):
    names: dict[str, Any] = {}
    exec(compile(LIBRARY, os.path.join("site-packages", "trainer.py"), "exec"), names)
    assert drawn_by(source, "train.py", each=names["each"]) == [takes]


# how much the examples weigh in a loss


def SINK(*outputs: torch.Tensor) -> Any:
    """What a DDP with find_unused_parameters=True does to the outputs of its network."""
    return _DDPSink.apply(lambda: SimpleNamespace(_ddp_sink_clone=True, static_graph=False, reducer=None), *outputs)


X, LABELS = torch.randn(8, 5), torch.arange(8) % 3
LOSSES = {
    "mean": (lambda scores: F.cross_entropy(scores, LABELS), [1.0]),
    "one of four micro-batches": (lambda scores: F.cross_entropy(scores, LABELS) / 4, [0.25]),
    "sum over a batch of 16": (lambda scores: F.cross_entropy(scores, LABELS, reduction="sum") / 16, [0.5]),
    "none, then mean": (lambda scores: F.cross_entropy(scores, LABELS, reduction="none").mean(), [1.0]),
    "by hand": (lambda scores: (scores - 1).square().sum(1).mean(), [1.0]),
    "two terms": (lambda scores: F.cross_entropy(scores, LABELS) + 0.5 * scores.square().mean(), [1.0, 0.5]),
    "half of each": (lambda scores: sum(F.cross_entropy(scores[i], LABELS[i]) for i in (slice(4), slice(4, 8))) / 2,
                     [0.5, 0.5]),
    "batchmean": (lambda scores: F.kl_div(scores, torch.ones(8, 3) / 3, reduction="batchmean"), [1.0]),
    "looks for unused parameters": (lambda scores: SINK(F.cross_entropy(scores, LABELS), scores.sum())[0], [1.0]),
    "the other output is the loss": (lambda scores: SINK(scores.sum(), F.cross_entropy(scores, LABELS) / 2)[1], [0.5]),
    "not known": (lambda scores: F.mse_loss(scores, torch.zeros(8, 3)).sqrt(), []),
}


@pytest.mark.parametrize("name", LOSSES)
def test_how_much_all_examples_weigh_is_read_off_the_graph(name: str):
    loss, weights = LOSSES[name]
    terms: list = []
    value = loss(nn.Linear(5, 3)(X))
    watch_loss(value, terms.append)
    value.backward()
    assert sorted(term.weight for term in terms) == pytest.approx(sorted(weights))


def test_watching_a_loss_does_not_change_its_gradient():
    nets = [nn.Linear(5, 3) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    losses = [F.cross_entropy(net(X), LABELS) for net in nets]
    watch_loss(losses[1], lambda term: None)
    for loss in losses:
        loss.backward()
    assert torch.equal(nets[0].weight.grad, nets[1].weight.grad)


# what is noted of a tensor


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (100, 100), (33, 1000)])
def test_the_sketch_of_a_sum_is_the_sum_of_the_sketches(shape: tuple[int, ...]):
    a, b = torch.randn(shape), torch.randn(shape)
    torch.testing.assert_close(sketch(a + 2 * b), sketch(a) + 2 * sketch(b), rtol=1e-4, atol=1e-4)
    assert not sketch(torch.zeros(shape)).any() and sketch(torch.ones(shape)).any()
    c = a.clone()
    c.view(-1)[-1] += 1
    assert not torch.equal(sketch(a), sketch(c))


def test_a_network_keeps_its_names_when_another_one_is_met():
    networks, first, second = Networks(), nn.Linear(2, 2), nn.Linear(2, 1)
    networks.add(first)
    names = [name for name, _ in networks.named_parameters()]
    networks.add(nn.Sequential(first))  # nothing new in it
    networks.add(second)
    assert names == ["weight", "bias"]
    assert [name for name, _ in networks.named_parameters()] == [*names, "Linear2.weight", "Linear2.bias"]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("shape", [(3,), (33, 1000)])
def test_a_number_that_is_not_finite_is_seen_in_a_sketch(number: float, shape: tuple[int, ...]):
    x = torch.zeros(shape)
    x.view(-1)[1] = number
    assert not sketch(x).isfinite().all()


@pytest.mark.parametrize("sets, place", [([[1, 2, 3], [1, 2, 3]], None), ([[1, 2, 3], [0, 2, 3]], 0), ([[1, 2, 3], [1, 2, 0]], 2),
                                         ([[1], [1]], None), ([[1], [0]], 0), ([[1, 2], [1, 2], [1, 0]], 1), ([[1, 2], [1, 2, 3]], None)], ids=str)
def test_data_sets_of_one_length_that_differ_in_their_first_or_last_example_are_found(sets: list[list[int]], place: int | None):
    records: list = []
    for examples in sets:
        at_ends, is_random = probe(TensorDataset(torch.tensor(examples)))
        loader = {"number": 0, "line": "", "sampler": "DistributedSampler", "examples": len(examples), "drawn": 1, "batches": 1,
                  "at_ends": at_ends, "is_random": is_random, "distributed": True, "drops": False}
        records.append([("group", {}), ("loader", loader), ("pass", {
            "number": 0, "epoch": 0, "trained": True, "steps": 1, "is_whole": False, "indices": [], "state": ""})])
    found = Diagnosis("a run", watched=True)
    judge(Ran(len(sets), records), found)
    assert list(found.faults) == ["different data sets"] * (place is not None)
    assert place is None or f"example {place} is not the same" in found.faults["different data sets"]


def test_an_example_that_cannot_be_read_or_drawn_again_does_not_hide_the_other():
    class Drawn(list):
        def __getitem__(self, i: Any) -> Any:
            return super().__getitem__(i)()

    same, new, unreadable = int, count().__next__, "".index  # which wants an argument
    for of, known in (((same, same), {0, 1}), ((same, new), {0}), ((same, unreadable), {0}), ((unreadable, same), {1})):
        at_ends, is_random = probe(Drawn(of))
        assert (at_ends.keys(), is_random) == (known, False)
    assert probe(Drawn([unreadable])) == probe(Drawn([new, new])) == probe([]) == (None, False)
    assert probe(Drawn([torch.rand(1).item, lambda: torch.rand(1).item()]))[1]


def test_examples_are_compared_whatever_they_are_made_of():
    words = {"input_ids": [1, 2, 3], "meta": {"name": "a"}}
    for x, other in ((words, words | {"input_ids": [1, 2, 4]}), (words, words | {"meta": {"name": "b"}}), (np.arange(3), np.arange(1, 4)),
                     (torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)), ((object(), 1), (object(), 2))):
        assert _digest(x) == _digest(copy.deepcopy(x)) != _digest(other)
    assert probe([object()]) == (None, False)  # nothing of it is known, so it is neither the same nor different


def test_an_example_is_known_by_everything_that_belongs_to_it():
    mask, ids = torch.ones(3, 4), torch.arange(12).view(3, 4)
    keys = keys_of_rows(with_rows({"mask": mask, "ids": ids, "weight": torch.ones(5)}))
    assert len(set(keys)) == 3 and keys == keys_of_rows(with_rows([{"mask": mask}, (ids,)]))
    assert len(set(keys_of_rows([mask]))) == 1 and with_rows(torch.ones(3)) == with_rows("no tensor") == []


def test_a_scheduler_that_gets_nan_on_all_ranks_is_no_difference_and_on_one_rank_is():
    def judged(*metrics: float) -> list[str]:
        records: list = [[("group", {}), ("plateau", {"metric": x, "line": "train.py, line 1"})] for x in metrics]
        found = Diagnosis("a run", watched=True)
        judge(Ran(len(metrics), records), found)
        return list(found.faults)

    nan = float("nan")
    assert judged(nan, nan) == judged(0.5, 0.5) == []
    assert judged(0.5, nan) == judged(0.5, 0.6) == ["different learning rates"]


# one step, as it is recorded


BFLOAT16 = torch.finfo(torch.bfloat16).eps


def values(numbers: torch.Tensor) -> Values:
    """The numbers as four tensors."""
    return {name: x.clone() for name, x in zip("abcd", numbers.double().chunk(4))}


def step_of(passes: torch.Tensor, taken: torch.Tensor, clip: float = 1.0, **changes: Any) -> dict[str, Any]:
    """What is recorded of a step of SGD with these backward passes, in which PyTorch clips what was exchanged."""
    step = Step(before=values(0 * taken), gradients=values(clip * taken), unclipped=values(taken),
                passes=[values(own) for own in passes], thrown_away=0, stale=False, after=values(-clip * taken),
                trainable=frozenset("abcd"), replaced=frozenset(), rates=[1.0], others=[], held=frozenset("abcd"),
                scale=1.0, eps=0.0, size=taken.numel(), reduced=0, forwards=len(passes), examples=[], micro_batches=[], exchanging=1,
                wrapped=frozenset("abcd"), bypassed=frozenset(), lost=frozenset(), buffers={}, lines={})
    known = {name: changes.pop(name) for name in list(changes) if name in Step._fields}
    return {"step": step._replace(**known), "terms": [], "optimizer": 0, "at_clip": None, "method": "SGD",
            "is_sharded": False, "is_fsdp": False, "never_trained": frozenset(), "divides_by_own": False,
            "has_gradient": True, "hooked": False, "wrapped": True, "no_sync": True, "group_size": 2} | changes


def judged(*steps: dict[str, Any]) -> tuple[Diagnosis, float | None]:
    """What is found in one step of each rank, and the factor of the exchange."""
    found = Diagnosis("a run", watched=True)
    scale = judge(Ran(len(steps), [[("group", {}), ("step", step)] for step in steps]), found)
    return found, scale.exchange if scale else None


def both(passes: torch.Tensor, taken: torch.Tensor, **changes: Any) -> tuple[Diagnosis, float | None]:
    """The same, where all ranks take the same gradient."""
    return judged(*(step_of(own, taken, **changes) for own in passes))


def passes_of(each: int, seed: int = 0) -> torch.Tensor:
    """The gradients of 8 micro-batches on each of two ranks, in four tensors of so many numbers."""
    return torch.randn(2, 8, 4 * each, generator=torch.Generator().manual_seed(seed)).double()


def rounded(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * (1 + by * torch.randn(x.shape, generator=torch.Generator().manual_seed(9)).double())


@pytest.mark.parametrize("each", [2, 8, 32])
@pytest.mark.parametrize("by", [1e-3, 2e-3, 5e-3])
@pytest.mark.parametrize("clip", [1.0, 0.5])
def test_rounding_to_bfloat16_is_not_taken_for_clipping_and_is_measured_before_clipping(each: int, by: float, clip: float):
    for seed in range(5):
        passes = passes_of(each, seed)
        found, exchange = both(passes, rounded(passes.sum(1).mean(0), by), clip=clip, eps=BFLOAT16)
        assert not found.faults and found.notes.keys() <= {"reduced precision"} and exchange == pytest.approx(1, abs=2e-3), str(found)
        if said := found.notes.get("reduced precision"):
            assert 20 * by < float(re.findall(r"off by ([\d.e-]+)%", said)[0]) < 200 * by, said


@pytest.mark.parametrize("eps, by", [(0.0, 0.0), (BFLOAT16, 0.0), (BFLOAT16, 5e-3)])
def test_each_micro_batchs_own_factor_is_found_in_any_dtype_if_there_are_enough_numbers(eps: float, by: float):
    factors = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]).double()
    for each, names in ((32, ["clipped in each micro-batch"]), (7, [])):
        passes = passes_of(each)
        taken = rounded((passes * factors[:, None]).sum(1).mean(0), by)
        found, _ = both(passes, taken, eps=eps)
        assert list(found.faults) == names and "reduced precision" not in found.notes, str(found)
    own = torch.stack([factors, factors.flip(0)])  # a factor for each micro-batch of each rank: twice as many unknowns
    for each, names in ((32, ["clipped in each micro-batch"]), (15, [])):
        passes = passes_of(each)
        found, _ = both(passes, rounded((passes * own[:, :, None]).sum(1).mean(0), by), eps=eps)
        assert list(found.faults) == names, str(found)


@pytest.mark.parametrize("times", [2.0, 0.5])
def test_a_sum_or_a_second_division_is_not_rounding(times: float):
    passes = passes_of(32)
    found, exchange = both(passes, times * rounded(passes.sum(1).mean(0), 5e-3), eps=BFLOAT16)
    assert not found.faults and not found.notes and exchange == times, str(found)


def test_a_gradient_that_is_neither_the_mean_nor_rounded_is_a_note_of_its_own():
    passes = passes_of(32)
    found, exchange = both(passes, rounded(passes.sum(1).mean(0), 0.3), eps=BFLOAT16)
    assert not found.faults and list(found.notes) == ["changed after the exchange"] and exchange is None


def test_a_fit_needs_four_numbers_for_each_weight_and_zeros_do_not_count():
    columns = passes_of(8)[0].T
    whole = columns @ torch.arange(1.0, 9).double()
    nan = columns.clone()
    nan[0, 0] = torch.nan
    with rounding(SKETCHES):
        weights = solve(columns, whole, 1)
        assert weights is not None and weights.tolist() == pytest.approx(list(range(1, 9)))
        assert solve(columns[:31], whole[:31], 1) is None
        few = torch.cat([columns[:31], torch.zeros(9, 8)])
        assert solve(few, few @ torch.arange(1.0, 9).double(), 1) is None
        assert solve(nan, whole, 1) is None and solve(columns, 0 * whole, 1) is None
        noise = torch.randn(32, generator=torch.Generator().manual_seed(1)).double() * whole.norm() * 1e-5
        weights = solve(columns, columns.sum(1) + noise, 1)
        assert weights is not None and len(set(weights.tolist())) == 1


@pytest.mark.parametrize("n, fault", [(4, "no_sync around the last pass"), (3, "different gradients")])
def test_which_backward_pass_was_not_exchanged_is_said_only_if_there_are_enough_numbers(n: int, fault: str):
    passes = torch.randn(2, 2, n, generator=torch.Generator().manual_seed(5)).double()
    taken = passes[:, 0].mean(0) + passes[:, 1]
    found, _ = judged(*(step_of(own, grad, forwards=2) for own, grad in zip(passes, taken)))
    assert list(found.faults) == [fault], str(found)


def steps_inside(k: int = 2, **changes: Any) -> list[dict[str, Any]]:
    """A step of k ranks without DDP that each find their own gradient, exchange it inside step() and end the same."""
    own, none = torch.randn(k, 1, 32, generator=torch.Generator().manual_seed(3)).double(), frozenset()
    after = values(-own.sum(1).mean(0))
    return [step_of(passes, passes.sum(0), **{"after": dict(after), "reduced": 32, "wrapped": none, "exchanging": 0}
                    | changes) | {"wrapped": False, "no_sync": False, "group_size": 0} for passes in own]


def with_changes(steps: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    """The same, but the last rank's step is changed."""
    for name, value in changes.items():
        if isinstance(value, dict):
            changes[name] = getattr(steps[-1]["step"], name) | value
    return [*steps[:-1], steps[-1] | {"step": steps[-1]["step"]._replace(**changes)}]


@pytest.mark.parametrize("k", [2, 3])
def test_an_optimizer_that_exchanges_gradients_inside_step_is_not_accused(k: int):
    found, _ = judged(*steps_inside(k))
    assert not found.faults and list(found.notes) == ["exchanged inside step()"], str(found)
    rates = judged(*with_changes(steps_inside(k), rates=[2.0]))[0]
    assert list(rates.faults) == ["different learning rates"]


def test_what_is_exchanged_inside_step_says_nothing_if_all_ranks_found_the_average():
    for reduced in (0, 1, 32):
        found, exchange = both(passes_of(8), passes_of(8).sum(1).mean(0), reduced=reduced)
        assert not found.faults and not found.notes and exchange == pytest.approx(1)


NOT_INSIDE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a norm is reduced": ({"reduced": 1}, {}, "not synchronised"),
    "a norm of each parameter is reduced": ({"reduced": 4}, {}, "not synchronised"),
    "a parameter is left out": ({"reduced": 24}, {}, "not synchronised"),
    "nothing is reduced": ({"reduced": 0}, {}, "not synchronised"),
    "a rank reduces nothing": ({}, {"reduced": 0}, "not synchronised"),
    "a rank ends with other parameters": ({}, {"after": {"c": torch.ones(8).double()}}, "not synchronised"),
    "a rank ends without a parameter": ({}, {"after": {"e": torch.ones(8).double()}}, "not synchronised"),
    "a rank ends with NaN": ({}, {"after": {"c": torch.full((8,), torch.nan).double()}}, "NaN"),
    "a rank begins with other parameters": ({}, {"before": {"c": torch.ones(8).double()}}, "not synchronised"),
}


@pytest.mark.parametrize("name", NOT_INSIDE)
@pytest.mark.parametrize("k", [2, 3])
def test_gradients_that_are_not_exchanged_inside_step_are_still_found(k: int, name: str):
    of_all, of_one, fault = NOT_INSIDE[name]
    found, _ = judged(*with_changes(steps_inside(k, **of_all), **of_one))
    assert fault in found.faults and "exchanged inside step()" not in found.notes, str(found)


def test_the_elements_that_a_collective_is_given_do_not_include_parameters(monkeypatch: pytest.MonkeyPatch):
    net = nn.Linear(3, 4)
    recorder = Recorder(net)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 2)
    grads, part = [torch.ones(4, 3), torch.ones(4)], torch.ones(6)
    for args, elements in (([part, grads[0]], 12), ([part, grads], 16), ([torch.ones(())], 1), ([net.weight], 0),
                           ([net.weight.data.view(-1)], 0), ([[net.bias.detach(), grads[0]]], 12), ([], 0)):
        assert recorder._elements([*args, None, 0]) == elements == recorder._elements([None, *args])
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 1)
    assert recorder._elements(grads) == 0


# how often it is right


ADD_A_RULE = "(book/authors.md, Add a rule to `diagnose` and `watch`)"


def test_the_stored_rates_count_every_script(root: Path):
    stored = json.loads((root / "d2lpar" / "pages" / "stored" / "gate.json").read_text("utf8"))
    for name, folder in (("held out, first round", "tuned"), ("held out, second round", "held_out")):
        cases, rates = gate.cases(root / "tests" / "watch" / folder), stored[f"watch, {name}"]
        kinds = Counter(case["is"] for case in cases.values() if name.endswith("first round") or not case.get("beyond"))
        assert (rates["right"], rates["wrong"]) == (kinds["right"], kinds["wrong"]), (
            f"Put new scripts elsewhere: those in tests/watch/{folder} were held out, and their rates stay {ADD_A_RULE}")
        assert rates["lines"] == gate.rows(rates)
        assert {path.stem for path in (root / "tests" / "watch" / folder).glob("*.py")} == set(cases)
    third = gate.cases(root / "tests" / "watch" / "third_round")
    kinds = Counter(case["is"] for name, case in third.items() if not name.startswith("style_"))
    for when in ("", ", before"):
        rates = stored[f"watch, held out, third round{when}"]
        assert (rates["right"], rates["wrong"]) == (kinds["right"], kinds["wrong"]) == (40, 40) and rates["lines"] == gate.rows(rates)
    assert {path.stem for path in (root / "tests" / "watch" / "third_round").glob("*.py")} == set(third)
    every = gate_watch.of_bugs() | gate_watch.of_diagnose() | gate_watch.of_folder(root / "tests" / "watch" / "tuned")
    kinds = Counter(case["is"] for case in every.values() if not case.get("beyond"))
    rates = stored["watch, tuned"]
    assert (rates["right"], rates["wrong"]) == (kinds["right"], kinds["wrong"]), (
        f"Store the rates again: python book/tools/gate_watch.py tuned --store tuned {ADD_A_RULE}")
    assert rates["let through"] + rates["right, not judged"] == rates["right"]
    assert rates["right cause"] >= 0.95 * (rates["wrong"] - rates["wrong, not judged"])
    beyond = [name for name, case in every.items() if case.get("beyond")]
    assert len(beyond) == 76 and 0.7 < rates["found"] / (rates["wrong"] + len(beyond)) < 0.8, (
        f"Correct notebooks/appendix/watch_and_diagnose.ipynb, which says that 76 are left out, and that three in four would be found with them {ADD_A_RULE}")


def test_what_only_a_single_device_can_tell_is_listed_by_its_script(root: Path):
    here = tomllib.loads((root / "tests" / "watch" / "cases.toml").read_text("utf8"))
    known = gate.cases(gate.TUNED) | gate.catalogue()
    listed = [*here["left_out"], *here["also"], *(name for names in here["beyond"].values() for name in names)]
    assert set(listed) <= set(known) and len(listed) == len(set(listed))
    assert all(known[name]["is"] == "wrong" for names in here["beyond"].values() for name in names)
