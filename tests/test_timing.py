"""Tests of d2lpar.timing: every case is timed as often as promised and in turn, and spans lie where the work was."""

import os
import platform
import re
import subprocess
import sys

import psutil
import pytest
import torch

from d2lpar import timing
from d2lpar.devices import all_cores
from d2lpar.pages.exercises import ex_keep_memory
from d2lpar.timing import Span, Stopwatch, describe_machine, time_each_repeat, time_interleaved

CPU = torch.device("cpu")


class Clock:
    """Stands in for the time module: time passes only when the test says so."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def advance(self, seconds):
        self.now += seconds


def test_cases_take_turns_so_that_a_slow_moment_hits_all():
    order = []
    times = time_interleaved({name: lambda name=name: order.append(name) for name in "abc"}, repeats=3, warmup=1)
    assert "".join(order) == "abc" * 4
    assert list(times) == ["a", "b", "c"]


def test_every_timed_round_is_given_in_order_or_their_median_and_no_warm_up(monkeypatch):
    clock = Clock(monkeypatch)
    seconds = {"a": iter([99, 1, 7, 2] * 2), "b": iter([99, 5, 5, 50] * 2)}
    cases = {name: lambda name=name: clock.advance(next(seconds[name])) for name in seconds}
    assert time_each_repeat(cases, repeats=3, warmup=1) == {"a": [1, 7, 2], "b": [5, 5, 50]}
    assert time_interleaved(cases, repeats=3, warmup=1) == {"a": 2, "b": 5}


def test_queued_work_is_waited_for_before_and_after_each_call(monkeypatch):
    events = []
    monkeypatch.setattr(timing, "synchronize", lambda devices: events.append(devices))
    time_interleaved({"a": lambda: events.append("work")}, repeats=2, warmup=0, devices=[CPU])
    assert events == [[CPU], "work", [CPU]] * 2


def test_what_comes_before_a_case_comes_before_each_call_and_is_not_timed(monkeypatch):
    clock, order = Clock(monkeypatch), []
    cases = {name: lambda name=name: (clock.advance(1), order.append(name)) for name in "ab"}
    times = time_each_repeat(cases, repeats=2, warmup=1, before=lambda: (clock.advance(10), order.append("-")))
    assert times == {"a": [1, 1], "b": [1, 1]} and "".join(order) == "-a-b" * 3


def test_the_machine_is_described_in_six_facts():
    facts = describe_machine()
    assert list(facts) == "processor GPUs memory system Python torch".split() and all(facts.values())
    assert f", {all_cores()} cores" in facts["processor"] and facts["torch"] == torch.__version__.partition("+")[0]
    memory_gb = int(re.fullmatch(r"(\d+) GB", facts["memory"])[1])
    assert abs(memory_gb - psutil.virtual_memory().total / 1e9) < 1


def test_a_stopwatch_records_seconds_since_it_was_made_in_order_of_the_starts(monkeypatch):
    clock = Clock(monkeypatch)
    watch = Stopwatch([CPU])
    clock.advance(1)
    with watch(0, "outer", CPU):
        clock.advance(2)
        with watch(1, "inner", CPU):
            clock.advance(4)
    assert watch.spans == [Span(0, "outer", 1, 7), Span(1, "inner", 3, 7)]


@pytest.mark.gpu
def test_a_span_on_a_gpu_lasts_as_long_as_the_work_that_was_queued():
    device = torch.device("cuda:0")
    X = torch.randn(4000, 4000, device=device)
    X @ X  # the first product also loads its library
    watch = Stopwatch([device, CPU])
    with watch(0, "one", device):
        X @ X
    with watch(0, "twenty", device):
        for _ in range(20):
            X @ X
    one, twenty = watch.spans
    assert 0 <= one.start_s < one.end_s <= twenty.start_s < twenty.end_s
    assert twenty.end_s - twenty.start_s > (one.end_s - one.start_s) / 2  # no time of a GPU is compared more closely


KEEP = "from d2lpar.timing import keep_freed_memory; keep_freed_memory()"
FAULTS = """
import ctypes
from resource import RUSAGE_SELF, getrusage

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: one page fault for each page

def step(size_bytes):
    before = getrusage(RUSAGE_SELF).ru_minflt
    blocks = [b"x" * size_bytes for _ in range(2)]
    return getrusage(RUSAGE_SELF).ru_minflt - before

def page_faults(size_bytes):
    return [step(size_bytes) for _ in range(3)][-1]
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
@pytest.mark.parametrize("setting, place, size_bytes, helps", [
    (KEEP, "map", 70_000_000, True),
    (KEEP, "ThreadPoolExecutor(1).map", 70_000_000, True),
    (KEEP, "older.map", 40_000_000, True),
    ("import os; os.environ.update(MALLOC_TRIM_THRESHOLD_=str(2**30), MALLOC_MMAP_MAX_=str(0))", "map", 70_000_000, False)])
def test_freed_memory_is_kept_without_page_faults_but_variables_set_from_within_come_too_late(
        setting, place, size_bytes, helps):
    script = f"""import torch
from concurrent.futures import ThreadPoolExecutor
{FAULTS}
older = ThreadPoolExecutor(1)
before, = older.map(page_faults, [{size_bytes}])
{setting}
print(before, *{place}(page_faults, [{size_bytes}]))
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=env)
    before, after = map(int, ended.stdout.split())
    pages = 2 * size_bytes // os.sysconf("SC_PAGE_SIZE")
    assert before > pages / 2 and (after < 100 if helps else after > pages / 2), ended.stderr


@pytest.mark.parametrize("settings, right", [
    ("MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_MAX_=0", True),
    ("MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_MAX_=1", False),
    ("MALLOC_TRIM_THRESHOLD_=1000 MALLOC_MMAP_MAX_=0", False),
    ("MALLOC_TRIM_THRESHOLD_=1GB MALLOC_MMAP_MAX_=0", False),
    ("MALLOC_TRIM_THRESHOLD_=1073741824", False),
    ("MALLOC_MMAP_MAX_=0", False),
    ("", False)])
def test_without_glibc_the_exercise_on_kept_memory_looks_at_the_variables(settings, right, monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    verdict = ex_keep_memory.check(lambda script: f"{settings} python {script}")
    assert verdict.startswith("Right." if right else "Not yet: train.py must start with MALLOC_MMAP_MAX_=0"), verdict
