"""Tests of d2lpar/pages/kill_tests.py: what torchrun has started is killed in many ways, and ends with the bits of a run that was not."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from d2lpar.checkpoints import newest_checkpoint
from d2lpar.pages.kill_tests import Drill, Kill, agent, differing, kill_test, rank_of, updates
from d2lpar.trainer import STOPPED
from helpers.ports import free_port

pytestmark = pytest.mark.slow
QUICK = ("--batch-size=32", "--num-train=512", "--num-test=64", "--timeout=60")  # 48 updates, as by the kill test's own options
LIMIT_S = 150


@pytest.fixture(autouse=True)
def on_the_cpu_and_nobody_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield
    assert [p for p in psutil.Process().children(recursive=True) if "d2lpar" in p.cmdline()] == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Drill]:
    """What comes of a training by a strategy that is left alone; each is made once."""
    made: dict[str, Drill] = {}

    def undisturbed(strategy: str) -> Drill:
        if strategy not in made:
            made[strategy] = kill_test(folder := tmp_path_factory.mktemp(strategy), *QUICK, f"--strategy={strategy}")
            assert made[strategy].status == 0 and made[strategy].state["step"] == 48, made[strategy].log
            assert_metrics_are_whole(folder)
        return made[strategy]

    return undisturbed


def assert_metrics_are_whole(folder: Path) -> None:
    """No update is there twice or missing, no line is torn."""
    lines = [json.loads(line) for line in (folder / "metrics").read_text().splitlines()]
    assert [line["step"] for line in lines if "lr" in line] == list(range(1, 49))
    assert [(line["epoch"], line["step"]) for line in lines if "epoch" in line] == [(1, 16), (2, 32), (3, 48)]


def assert_ended_as(done: Drill, undisturbed: Drill, folder: Path) -> None:
    """In the end all is there with the same bits, and was written once."""
    assert done.status == 0, done.log
    assert differing(done.state, undisturbed.state) == [], done.log
    assert_metrics_are_whole(folder)


@pytest.mark.parametrize("strategy, kills", [("own", 1), pytest.param("ddp", 2, marks=pytest.mark.weekly)])
def test_ranks_that_are_killed_at_any_step_leave_no_trace(undisturbed: Callable, tmp_path: Path, strategy: str, kills: int) -> None:
    drawn = sorted(Kill(random.randrange(1, 45), random.randrange(2)) for _ in range(kills))
    done = kill_test(tmp_path, *QUICK, f"--strategy={strategy}", kills=drawn)
    assert len(done.recovered_s) == kills and done.log.count(" ranks: ") == 1 + kills, (drawn, done.log)
    assert_ended_as(done, undisturbed(strategy), tmp_path)


KILLED_WHILE_SAVING = """
import os, signal
from d2lpar.__main__ import main

saves, name = [], {"0": "fsync", "1": "replace"}.get(os.environ["TORCHELASTIC_RESTART_COUNT"])

def killed(*args):
    if name == "fsync" or str(args[0]).endswith("/unfinished"):
        saves.append(args)
    if len(saves) == 3:
        print("killed in", name, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return right(*args)

if name and os.environ["RANK"] == "0":
    right = getattr(os, name)
    setattr(os, name, killed)
main()
"""


@pytest.mark.weekly
def test_nor_one_that_is_killed_while_it_saves(undisturbed: Callable, tmp_path: Path) -> None:
    (program := tmp_path / "killed.py").write_text(KILLED_WHILE_SAVING)
    done = kill_test(tmp_path / "run", *QUICK, program=[str(program)])
    assert re.findall("killed in (.*)", done.log) == ["fsync", "replace"], done.log
    assert re.findall(r"goes on from step-(\d+)", done.log) == ["00000010", "00000016"]
    assert_ended_as(done, undisturbed("ddp"), tmp_path / "run")
    assert len(list((tmp_path / "run").glob("*.pt"))) == 2 and not (tmp_path / "run" / "unfinished").exists()


@pytest.mark.weekly
def test_a_rank_that_stands_still_is_given_up(undisturbed: Callable, tmp_path: Path) -> None:
    done = kill_test(tmp_path, *QUICK, "--timeout=8", kills=[Kill(12, 1, signal.SIGSTOP)])
    assert "rank 0 has lost another one: " in done.log and "Timed out" in done.log
    assert_ended_as(done, undisturbed("ddp"), tmp_path)


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


@pytest.mark.weekly
def test_an_agent_that_is_told_to_end_lets_all_ranks_save_and_the_same_command_goes_on(undisturbed: Callable, tmp_path: Path) -> None:
    running = agent(tmp_path, *QUICK)
    until(lambda: updates(tmp_path) >= 18, "no update 18")
    ranks = [rank_of(running, rank) for rank in range(2)]
    running.terminate()
    assert running.wait(LIMIT_S) != 0
    assert not any(rank.is_running() for rank in ranks)
    log = (tmp_path / "log").read_text()
    made, = re.findall(r"^told to stop: (\d+) of 48 updates are made, and kept$", log, re.M)
    assert newest_checkpoint(tmp_path)[1]["step"] == int(made) == updates(tmp_path) >= 18
    done = kill_test(tmp_path, *QUICK)
    assert f"goes on from {checkpoint_name(log, done.log)}, {made} of 48 updates" in done.log
    assert_ended_as(done, undisturbed("ddp"), tmp_path)


def checkpoint_name(before: str, after: str) -> str:
    return re.findall(r"goes on from (step-\S+\.pt)", after.removeprefix(before))[0]


@pytest.mark.weekly
def test_if_one_rank_is_told_to_end_all_save_end_with_their_own_status_and_go_on(undisturbed: Callable, tmp_path: Path) -> None:
    done = kill_test(tmp_path, *QUICK, kills=[Kill(18, 1, signal.SIGTERM)])
    made, = re.findall(r"^told to stop: (\d+) of 48 updates are made, and kept$", done.log, re.M)
    assert f", {made} of 48 updates" in done.log.split("goes on from")[1]  # nothing is made twice
    assert set(re.findall(r"failed \(exitcode: (-?\d+)\)", done.log)) == {str(STOPPED)}
    assert_ended_as(done, undisturbed("ddp"), tmp_path)


@pytest.mark.weekly
def test_ranks_whose_agent_is_killed_save_and_end_and_three_go_on_from_there(tmp_path: Path) -> None:
    running = agent(tmp_path, *QUICK)
    until(lambda: updates(tmp_path) >= 18, "no update 18")
    ranks = [rank_of(running, rank) for rank in range(2)]
    running.kill()
    running.wait()
    assert psutil.wait_procs(ranks, LIMIT_S)[1] == []
    assert 18 <= newest_checkpoint(tmp_path)[1]["step"] == updates(tmp_path) < 48
    done = kill_test(tmp_path, *QUICK, ranks=3)
    assert done.status == 0 and "; other bits than undisturbed: ranks was 2 and is 3\n" in done.log, done.log
    assert_metrics_are_whole(tmp_path)
    assert done.state["step"] == 48 and len(done.state["random"]) == 3


@pytest.mark.weekly
def test_ranks_whose_agent_is_killed_while_they_import_end_after_one_update(tmp_path: Path) -> None:
    (program := tmp_path / "slow.py").write_text(f"""
import builtins, sys, time
from d2lpar.__main__ import main

def slow(name, *more, **options):
    if name == "d2lpar.trainer" and not asked:
        asked.append(name)
        open({str(tmp_path / 'imports')!r}, "a").write("1")
        time.sleep(2)
    return right(name, *more, **options)

asked, right, builtins.__import__ = [], builtins.__import__, slow
main()
""")
    running = agent(tmp_path, *QUICK, program=[str(program)])
    until(lambda: (tmp_path / "imports").exists() and (tmp_path / "imports").read_text() == "11", "no imports")
    ranks = [rank_of(running, rank) for rank in range(2)]
    running.kill()
    running.wait()
    assert psutil.wait_procs(ranks, LIMIT_S)[1] == []
    assert newest_checkpoint(tmp_path)[1]["step"] == updates(tmp_path) == 1


@pytest.mark.weekly
def test_of_two_agents_one_is_killed_with_its_rank_and_started_again(undisturbed: Callable, tmp_path: Path) -> None:
    meet = ["--nnodes=2", "--rdzv-id=kill", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--local-addr=127.0.0.1"]
    options = [*QUICK, "--timeout=20", f"--checkpoints={tmp_path / 'run'}", f"--metrics={tmp_path / 'metrics'}"]
    started = []

    def start(machine: str) -> subprocess.Popen:
        started.append(agent(tmp_path / machine, *options, ranks=1, torchrun=meet))
        return started[-1]

    try:
        holds_the_store, other = start("first"), None
        until(lambda: (tmp_path / "first" / "log").exists() and psutil.Process(holds_the_store.pid).net_connections(), "no store")
        other = start("second")
        until(lambda: updates(tmp_path) >= 18, "no update 18")
        children = psutil.Process(other.pid).children()
        for process in (other, *children):
            process.kill()
        other.wait()
        other = start("again")
        assert [one.wait(LIMIT_S) for one in (holds_the_store, other)] == [0, 0]
    finally:
        for one in started:
            one.terminate()
            one.wait()
        logs = "".join(path.read_text() for path in tmp_path.glob("*/log"))
        print(logs)  # for whoever reads of a failure
    assert logs.count(" ranks: ") == 2 and " goes on from " in logs
    assert differing(newest_checkpoint(tmp_path / "run")[1], undisturbed("ddp").state) == []
    assert_metrics_are_whole(tmp_path)


RAISES = """
import os
from d2lpar import trainer
from d2lpar.__main__ import main

def broken(*args):
    if os.environ["RANK"] == "1":
        raise ValueError("a pixel is missing")
    return right(*args)

right, trainer.loss = trainer.loss, broken
main()
"""


def assert_report_leads_with_rank_1(done: Drill, *words: str) -> None:
    assert done.status == 1 and done.recovered_s == [], done.log
    report = done.log.partition("Root Cause (first observed failure)")[2]
    assert re.search(r"rank +: 1 \(local_rank: 1\)", report.partition("traceback")[0]), done.log
    assert all(w in report for w in words) and "rank 0 has lost another one: " in done.log, done.log


@pytest.mark.weekly
def test_the_report_of_a_crash_leads_with_the_rank_that_raised_and_its_traceback(tmp_path: Path) -> None:
    (program := tmp_path / "raises.py").write_text(RAISES)
    done = kill_test(tmp_path / "run", *QUICK, restarts=0, program=[str(program)])
    assert_report_leads_with_rank_1(done, "ValueError: a pixel is missing", "raises.py")


def test_the_report_of_a_rank_that_was_killed_leads_with_it(tmp_path: Path) -> None:
    done = kill_test(tmp_path, *QUICK, restarts=0, kills=[Kill(5, 1)], torchrun=["--standalone", "--monitor-interval=2"])  # it looks late
    assert_report_leads_with_rank_1(done, "Signal 9 (SIGKILL) received by PID")


def test_what_all_ranks_refuse_is_said_once(tmp_path: Path) -> None:
    done = kill_test(tmp_path, *QUICK, "--speed=9", restarts=0)
    assert done.status == 1 and done.log.count("unrecognized arguments: --speed=9; --help lists all options") == 1, done.log
    assert "rank      : 0 (local_rank: 0)" in done.log
