"""Tests of book/lab/records.py: a file of runs that is never half written, goes on where it was, and leaves no process."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from d2lpar.pages.results import RecordError, read_records
from helpers.waiting import until
from records import run_missing

ABOUT = {"machine": "this one"}
RUNS = [{"seed": seed, "x": x} for seed in range(3) for x in "ab"]


def doubled(seed, x):
    """What a run finds here, and which process found it."""
    if x == "raises":
        raise ArithmeticError(f"seed {seed} does not converge")
    return {"found": x * 2, "process": os.getpid()}


def slow(seed, x):
    """A run that takes a moment, in which something can happen."""
    time.sleep(0.3)
    return {"found": x * 2}


def runs_in(path):
    return [record["run"] for record in read_records(path)[1]]


pytestmark = [pytest.mark.slow, pytest.mark.weekly]  # runs are processes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.jsonl"


@pytest.fixture
def full(path):
    lines = [{"about": ABOUT}, *[{"run": run, "found": run["x"] * 2} for run in RUNS]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_every_run_has_one_record_and_runs_of_one_seed_share_a_process(path):
    run_missing(path, ABOUT, RUNS, doubled, 2)
    about, records = read_records(path)
    assert about == ABOUT and sorted(map(str, runs_in(path))) == sorted(map(str, RUNS))
    assert all(record["found"] == record["run"]["x"] * 2 for record in records)
    processes = [{r["process"] for r in records if r["run"]["seed"] % 2 == parity} for parity in (0, 1)]
    assert [len(p) for p in processes] == [1, 1] and processes[0] != processes[1] != {os.getpid()}


def test_what_is_there_is_not_run_again_and_what_is_new_is_added(full):
    before = full.read_bytes()
    run_missing(full, ABOUT, RUNS, doubled, 1)
    assert full.read_bytes() == before
    run_missing(full, ABOUT, [*RUNS, {"seed": 9, "x": "c"}], doubled, 1)
    assert full.read_bytes().startswith(before) and len(runs_in(full)) == 7


def test_cut_off_at_any_byte_it_goes_on_without_a_lost_or_a_doubled_run(full, path, monkeypatch):
    import records

    class Here:
        """An executor without a process, for many files."""

        def submit(self, function, **run):
            result = Future()
            result.set_result(function(**run))
            return result

    whole = full.read_bytes()
    monkeypatch.setattr(records, "_processes", lambda count: nullcontext([Here()] * count))
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        if whole[:length].count(b"\n") < 1 or whole[length - 1:length] != b"\n":
            with pytest.raises(RecordError, match="no whole line|cut off"):
                read_records(path)
        run_missing(path, ABOUT, RUNS, slow_free, 2)
        assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines()), length


def slow_free(seed, x):
    return {"found": x * 2}


def test_what_is_no_file_of_records_is_refused_by_line_and_left_as_it_is(path):
    record = json.dumps({"run": RUNS[0]})
    about = json.dumps({"about": ABOUT})
    for text, said in ((f"{about}\n{record}\nnothing\n", "line 3 is none"), (f"{record}\n{record}\n", "line 1 is none"),
                       (f"{about}\n{record}\n{record}\n", "one run twice: line 3 and line 2"), ("a letter\n", "line 1 is none"),
                       (f"{about}\n[1]\n", "line 2 is none"), ("a letter", "holds no records"), (f"{about}\n\n", "line 2"),
                       ('{"about": null}\n', "line 1 is none"), (f"{about}\n{'[' * 100_000}\n", "line 2 is none")):
        path.write_text(text)
        for use in (lambda: read_records(path), lambda: run_missing(path, ABOUT, RUNS, doubled, 1)):
            with pytest.raises(RecordError, match="runs.jsonl") as caught:
                use()
            assert path.read_text() == text
        assert said in str(caught.value)
    with pytest.raises(RecordError, match=r"none\.jsonl cannot be read: No such file"):
        read_records(path.with_name("none.jsonl"))
    with pytest.raises(RecordError, match="cannot be written: "):
        run_missing(path.parent, ABOUT, RUNS, doubled, 1)


def test_records_of_another_origin_are_not_mixed(full):
    before = full.read_bytes()
    for about in ({"machine": "another"}, {}, {**ABOUT, "data": "more"}):
        with pytest.raises(RecordError, match="another origin, it differs in (machine|data)"):
            run_missing(full, about, RUNS, doubled, 1)
    assert full.read_bytes() == before


def test_a_run_that_raises_ends_all_with_its_error_and_what_had_ended_is_kept(path):
    before = psutil.Process().children(recursive=True)
    with pytest.raises(ArithmeticError, match="seed 0 does not converge"):
        run_missing(path, ABOUT, [RUNS[0], {"seed": 0, "x": "raises"}, RUNS[1]], doubled, 1)
    assert runs_in(path) == [RUNS[0]]
    left = set(psutil.Process().children(recursive=True)) - set(before)
    assert [p for p in left if p.status() == psutil.STATUS_ZOMBIE or "spawn_main" in " ".join(p.cmdline())] == []


SCRIPT = """
import sys
from test_records import ABOUT, slow
from records import run_missing
if __name__ == "__main__":
    run_missing(sys.argv[1], ABOUT, [{"seed": seed, "x": "a"} for seed in range(40)], slow, 2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda how: how.name)
def test_ended_from_outside_it_leaves_whole_lines_and_no_process(path, how, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen([sys.executable, script, path], env=environment, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    until(lambda: process.poll() is not None or (path.exists() and path.read_bytes().count(b"\n") >= 4), 120)
    assert process.poll() is None, "it has ended by itself"
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode != 0 and len(children) >= 2
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive, [p.cmdline() for p in alive]
    text = path.read_bytes()
    kept = [json.loads(line) for line in text.splitlines()[1:]] if text.endswith(b"\n") else None
    assert kept is None or len({row["run"]["seed"] for row in kept}) == len(kept) < 40
    run_missing(path, ABOUT, [{"seed": seed, "x": "a"} for seed in range(len(text.splitlines()) + 1)], doubled, 1)
    assert len(runs_in(path)) == len({run["seed"] for run in runs_in(path)})
