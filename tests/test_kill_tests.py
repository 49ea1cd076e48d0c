"""Tests of d2lpar/pages/kill_tests.py: train_ddp.py under torchrun is killed in many ways, and ends with the bits of a run that was not."""

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
from d2lpar.pages.kill_tests import Ended, Kill, agent, differing, kill_test, rank_of, updates
from d2lpar.train_ddp import STOPPED
from helpers.ports import free_port
from helpers.train_script import script_on_few_images

pytestmark = pytest.mark.slow
QUICK = ("--batch-size=32", "--epochs=3")  # of 512 images, so 48 updates
LIMIT_S = 150


@pytest.fixture(autouse=True)
def on_the_cpu_and_nobody_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield
    assert [p for p in psutil.Process().children(recursive=True) if any("train_ddp.py" in word for word in p.cmdline())] == []


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return lambda changes=None: script_on_few_images(tmp_path_factory.mktemp("scripts"), changes)


@pytest.fixture(scope="module")
def quick(changed: Callable) -> Path:
    return changed()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, quick: Path) -> Callable[..., Ended]:
    """What comes of a run on so many ranks that is left alone; each is made once."""
    made: dict[int, Ended] = {}

    def uninterrupted(ranks: int = 2) -> Ended:
        if ranks not in made:
            made[ranks] = kill_test(folder := tmp_path_factory.mktemp(f"ranks{ranks}"), *QUICK, ranks=ranks, script=quick)
            assert made[ranks].status == 0 and made[ranks].state["step"] == 48, made[ranks].log
            assert_metrics_are_whole(folder)
        return made[ranks]

    return uninterrupted


def assert_metrics_are_whole(folder: Path) -> None:
    """No update is there twice or missing, no line is torn."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]
    assert [line["step"] for line in lines if "norm" in line] == list(range(1, 49))
    assert [(line["epoch"], line["step"]) for line in lines if "epoch" in line] == [(1, 16), (2, 32), (3, 48)]


def parameters(log: str) -> list[str]:
    """What a reader compares by eye."""
    return re.findall(r"^parameters: (\w{16})$", log, re.M)


def assert_ended_as(ended: Ended, uninterrupted: Ended, folder: Path) -> None:
    """In the end all is there with the same bits, and was written once."""
    assert ended.status == 0, ended.log
    assert differing(ended.state, uninterrupted.state) == [], ended.log
    assert parameters(ended.log)[-1:] == parameters(uninterrupted.log) != []
    assert_metrics_are_whole(folder)


@pytest.mark.weekly  # the chapter kills one of two ranks every day
@pytest.mark.parametrize("ranks, kills", [(2, 1), (1, 1), (3, 2)])
def test_ranks_that_are_killed_at_any_step_leave_no_trace(uninterrupted: Callable, tmp_path: Path, quick: Path, ranks: int, kills: int) -> None:
    drawn = sorted(Kill(random.randrange(1, 45), random.randrange(ranks)) for _ in range(kills))
    ended = kill_test(tmp_path, *QUICK, kills=drawn, ranks=ranks, script=quick)
    assert len(ended.recovered_s) == kills and len(re.findall(" ranks?: (?:starting|resuming)", ended.log)) == 1 + kills, (drawn, ended.log)
    assert_ended_as(ended, uninterrupted(ranks), tmp_path)


KILLED_WHILE_SAVING = """
saves, name = [], {"0": "fsync", "1": "replace"}.get(os.environ["TORCHELASTIC_RESTART_COUNT"])

def killed(*args):
    if name == "fsync" or str(args[0]).endswith("/unfinished"):
        saves.append(args)
    if len(saves) == (5 if name == "fsync" else 3):  # each save syncs the file and the folder
        print("killed in", name, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return right(*args)

if name and os.environ["RANK"] == "0":
    right = getattr(os, name)
    setattr(os, name, killed)
"""


@pytest.mark.weekly
def test_nor_one_that_is_killed_while_it_saves(uninterrupted: Callable, tmp_path: Path, changed: Callable) -> None:
    ended = kill_test(tmp_path, *QUICK, script=changed({"\n\nclass Refused": f"{KILLED_WHILE_SAVING}\n\nclass Refused"}))
    assert re.findall("killed in (.*)", ended.log) == ["fsync", "replace"], ended.log
    assert re.findall(r"resuming from step-(\d+)", ended.log) == ["00000010", "00000020"]
    assert_ended_as(ended, uninterrupted(), tmp_path)
    assert len(list(tmp_path.glob("*.pt"))) == 2 and not (tmp_path / "unfinished").exists()


@pytest.mark.weekly
def test_a_rank_that_stands_still_is_given_up(uninterrupted: Callable, tmp_path: Path, changed: Callable) -> None:
    ended = kill_test(tmp_path, *QUICK, script=changed({"seconds=120": "seconds=8"}), kills=[Kill(12, 1, signal.SIGSTOP)])
    assert "rank 0 lost contact with another rank: " in ended.log and "Timed out" in ended.log
    assert_ended_as(ended, uninterrupted(), tmp_path)


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def stopped_at(folder: Path) -> int:
    """How far a run came that was told to stop, as its file says; the log and the checkpoint say the same."""
    told = (folder / "stopped").read_text()
    made = int(re.fullmatch(r"stopped: (\d+) of 48 updates done and saved; the same command resumes the run\n", told)[1])
    assert told in (folder / "log").read_text() and newest_checkpoint(folder)[1]["step"] == updates(folder) == made
    return made


@pytest.mark.weekly
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_an_agent_that_is_told_to_end_lets_all_ranks_save_and_the_same_command_goes_on(
        uninterrupted: Callable, tmp_path: Path, quick: Path, ctrl_c_is_obeyed: None, how: int) -> None:
    running = agent(tmp_path, *QUICK, script=quick)
    until(lambda: updates(tmp_path) >= 18, "no update 18")
    ranks = [rank_of(running, rank) for rank in range(2)]
    running.send_signal(how)
    assert running.wait(LIMIT_S) == 1
    assert not any(rank.is_running() for rank in ranks)
    made = stopped_at(tmp_path)
    assert made >= 18
    ended = kill_test(tmp_path, *QUICK, script=quick)
    assert re.search(rf"resuming from step-{made:08}-\w+.pt, {made} of 48 updates done\n", ended.log) and not (tmp_path / "stopped").exists()
    assert_ended_as(ended, uninterrupted(), tmp_path)


@pytest.mark.weekly
@pytest.mark.parametrize("restarts, status", [(0, STOPPED), (3, 0)])
def test_if_one_rank_is_told_to_end_all_save_end_and_are_not_started_again(uninterrupted: Callable, tmp_path: Path, quick: Path,
                                                                          restarts: int, status: int) -> None:
    running = agent(tmp_path, *QUICK, script=quick, restarts=restarts)
    until(lambda: updates(tmp_path) >= 18, "no update 18")
    rank_of(running, 1).terminate()
    assert running.wait(LIMIT_S) == (status != 0)
    log = (tmp_path / "log").read_text()
    assert set(re.findall(r"failed \(exitcode: (-?\d+)\)", log)) == ({str(status)} if status else set()), log
    assert stopped_at(tmp_path) >= 18 and log.count(" ranks: ") == 1
    assert_ended_as(kill_test(tmp_path, *QUICK, script=quick), uninterrupted(), tmp_path)


@pytest.mark.weekly
def test_ranks_whose_agent_is_killed_save_and_end_and_three_go_on_from_there(tmp_path: Path, quick: Path) -> None:
    running = agent(tmp_path, *QUICK, script=quick)
    until(lambda: updates(tmp_path) >= 18, "no update 18")
    ranks = [rank_of(running, rank) for rank in range(2)]
    running.kill()
    running.wait()
    assert psutil.wait_procs(ranks, LIMIT_S)[1] == []
    assert 18 <= stopped_at(tmp_path) < 48
    ended = kill_test(tmp_path, *QUICK, ranks=3, script=quick)
    assert ended.status == 0 and "; different bits from an uninterrupted run: ranks was 2 and is now 3\n" in ended.log, ended.log
    assert_metrics_are_whole(tmp_path)
    assert ended.state["step"] == 48 and len(ended.state["random"]) == 3


@pytest.mark.weekly
def test_ranks_whose_agent_is_killed_while_they_import_end_after_one_update(tmp_path: Path, changed: Callable) -> None:
    slow = f"import argparse\nimport time\nopen({str(tmp_path / 'imports')!r}, 'a').write('1')\ntime.sleep(2)\n"
    running = agent(tmp_path, *QUICK, script=changed({"import argparse\n": slow}))
    until(lambda: (tmp_path / "imports").exists() and (tmp_path / "imports").read_text() == "11", "no imports")
    ranks = [rank_of(running, rank) for rank in range(2)]
    running.kill()
    running.wait()
    assert psutil.wait_procs(ranks, LIMIT_S)[1] == []
    assert stopped_at(tmp_path) == 1


@pytest.mark.weekly
def test_of_two_agents_one_is_killed_with_its_rank_and_started_again(uninterrupted: Callable, tmp_path: Path, changed: Callable) -> None:
    meet = ["--nnodes=2", "--rdzv-id=kill", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--local-addr=127.0.0.1"]
    options, script = [*QUICK, f"--checkpoints={tmp_path / 'run'}"], changed({"seconds=120": "seconds=20"})
    started = []

    def start(machine: str) -> subprocess.Popen:
        started.append(agent(tmp_path / machine, *options, ranks=1, torchrun=meet, script=script))
        return started[-1]

    try:
        holds_the_store, other = start("first"), None
        until(lambda: (tmp_path / "first" / "log").exists() and psutil.Process(holds_the_store.pid).net_connections(), "no store")
        other = start("second")
        until(lambda: updates(tmp_path / "run") >= 18, "no update 18")
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
        print(logs)  # shown if the test fails
    assert len(re.findall(r"ranks: (?:starting|resuming)", logs)) == 2 and " resuming from " in logs
    assert differing(newest_checkpoint(tmp_path / "run")[1], uninterrupted().state) == []
    assert_metrics_are_whole(tmp_path / "run")


def assert_report_leads_with_rank_1(ended: Ended, *words: str) -> None:
    assert ended.status == 1, ended.log
    report = ended.log.partition("Root Cause (first observed failure)")[2]
    assert re.search(r"rank +: 1 \(local_rank: 1\)", report.partition("traceback")[0]), ended.log
    assert all(w in report for w in words) and "rank 0 lost contact with another rank: " in ended.log, ended.log


@pytest.mark.weekly
def test_the_report_of_a_crash_leads_with_the_rank_that_raised_and_its_traceback(tmp_path: Path, changed: Callable) -> None:
    raises = '    if dist.get_rank() == 1:\n        raise ValueError("a pixel is missing")\n    images, labels = data\n'
    ended = kill_test(tmp_path, *QUICK, restarts=0, script=changed({"    images, labels = data\n": raises}))
    assert_report_leads_with_rank_1(ended, "ValueError: a pixel is missing", "train_ddp.py")


def test_the_report_of_a_rank_that_was_killed_leads_with_it(tmp_path: Path, changed: Callable) -> None:
    # between two collectives: gloo may not report a kill to a rank that is sending, see tests/test_it_hangs.py
    killed = "    if dist.get_rank() == 1 and step == 7:\n        os.kill(os.getpid(), signal.SIGKILL)\n    images, labels = data\n"
    ended = kill_test(tmp_path, *QUICK, restarts=0, script=changed({"    images, labels = data\n": killed}),
                      torchrun=["--standalone", "--monitor-interval=2"])  # the agent looks late, so rank 0 notices first
    assert_report_leads_with_rank_1(ended, "Signal 9 (SIGKILL) received by PID")


def test_what_all_ranks_refuse_is_said_once(tmp_path: Path, quick: Path) -> None:
    ended = kill_test(tmp_path, *QUICK, "--speed=9", restarts=0, script=quick)
    assert ended.status == 1 and ended.log.count("unrecognized arguments: --speed=9; --help lists all options") == 1, ended.log
    assert "rank      : 0 (local_rank: 0)" in ended.log
