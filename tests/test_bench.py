"""Tests of `make bench`: what a row says, what is refused, and how it is shown. None looks at a time."""

import math
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bench as run
import bench_cases as cases
import bench_single as single
from bench_cases import ALGORITHMS, ALONE, WrongResult, on_this_rank
from bench_report import GROUPS, Report, Row, finding, from_json, moved, ratio_row, table
from d2lpar.data import Batches
from d2lpar.devices import make_gpus_reproducible
from d2lpar.launch import RankError

ROW = Row("allreduce", "allreduce_ring, 2 devices", "gloo, 2 processes", 4.8764, 4.3, 15.21, [5.1, 4.7], 9.84)
REPORT = Report({"processor": "Größe, 2 cores"}, 2, 5, 20, [ROW, Row("data", "ours", "torchvision", 128.4, 90, 149.6, [128.4])])


# What a row says


def test_the_ratio_is_the_median_of_the_ratios_and_not_that_of_the_medians():
    times = {"ours": [1.0, 2.0, 1.0], "theirs": [2.0, 2.0, 40.0]}  # one by one 2, 1, 40; of the medians 2
    row = ratio_row("data", "a", "b", [times], "ours", "theirs", limit=3.0)
    assert row == Row("data", "a", "b", 2.0, 1.0, 40.0, [2.0], 3.0)
    assert ratio_row("data", "b", "a", [times], "theirs", "ours").ratio == 0.5
    with pytest.raises(ValueError):  # a repeat is missing
        ratio_row("data", "a", "b", [{"ours": [1.0, 2.0], "theirs": [2.0, 2.0, 2.0]}], "ours", "theirs")


def test_the_range_takes_in_every_block_of_every_build():
    builds = [{"ours": [1.0] * 3, "theirs": [1.2, 1.1, 1.3]}, {"ours": [1.0] * 3, "theirs": [0.9, 1.0, 0.8]}]
    row = ratio_row("data", "a", "b", builds, "ours", "theirs")
    assert (row.low, row.ratio, row.high, row.builds) == (0.8, 1.05, 1.3, [1.2, 0.9])
    assert ratio_row("data", "a", "b", builds[:1], "ours", "theirs")[4:6] == (1.1, 1.3)


def test_a_row_whose_range_contains_one_makes_no_difference():
    for low, high, words in ((0.9, 1.1, "no difference (1.00)"), (1.0, 1.1, "no difference (1.00)"),
                             (0.8, 0.99, "1.00"), (1.001, 1.2, "1.00")):
        row = Row("data", "a", "b", 1.0, low, high, [1.0])
        assert table([row]).splitlines()[-1].split("|")[3].strip() == words
        assert finding([row]).startswith("No difference (1.00)") == words.startswith("no")


def test_a_row_has_moved_if_its_ranges_in_the_two_runs_do_not_overlap():
    def with_range(low, high):
        return REPORT._replace(rows=[ROW._replace(low=low, high=high), REPORT.rows[1], ROW._replace(what="a new row")])

    words = "allreduce_ring, 2 devices, against gloo, 2 processes: {}, and before 4.30 to 15.2"
    assert moved(REPORT, with_range(4.1, 4.2)) == [words.format("4.10 to 4.20")]
    assert moved(REPORT, with_range(15.3, 16)) == [words.format("15.3 to 16.0")]
    for low, high in ((4.1, 4.4), (15.2, 16), (5, 6), (4, 16)):
        assert moved(REPORT, with_range(low, high)) == []


def test_each_algorithm_is_compared_with_the_processes_and_the_limit_is_to_move_the_bytes():
    times = {"processes": [12.0] * 3, "one pass": [2.0] * 3}
    times |= {name: [float(i)] * 3 for i, name in enumerate(ALGORITHMS, start=3)}
    rows = run.allreduce_rows(4, "large", "gloo", [times, times])
    assert [(row.group, row.ratio, row.limit) for row in rows] == [("allreduce", 12 / i, 6.0) for i in (3, 4, 5, 6)]
    assert [row.what for row in rows] == [f"{name}, 4 devices, 44.7 MB" for name in ALGORITHMS]
    assert {row.against for row in rows} == {"gloo, 4 processes"} and "67%" in table(rows[:1]), "3 s, and 2 s for the bytes alone"
    small = run.allreduce_rows(4, "small", "gloo", [times])  # where not the bytes are what takes the time
    assert [(row.ratio, row.limit) for row in small] == [(12 / i, None) for i in (3, 4, 5, 6)]
    assert all("16 kB" in row.what for row in small)


@pytest.mark.parametrize("k, cores, gpus, hardware", [(2, 2, 0, 2), (4, 2, 0, 2), (2, 8, 0, 2), (2, 8, 2, 2), (4, 2, 8, 4)])
def test_a_step_is_compared_with_one_device_of_both_kinds_and_the_limit_is_what_processes_reach_alone(
        k, cores, gpus, hardware, monkeypatch):
    monkeypatch.setattr(run, "all_cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    names = {ALONE: 1.6, "k devices": 2, "1 device": 4, "1 device, all cores": 6, "processes": 8, "plain loop": 10}
    rows = run.step_rows("LeNet", k, "nccl" if gpus else "gloo", [{name: [float(s)] * 3 for name, s in names.items()}] * 2)
    expected = [(2.5, hardware), (2, 2.5), (3, 3.75), (4, None), (2.5, 1)]
    if gpus:
        del expected[2]  # a GPU has no other kind
    assert [(row.ratio, row.limit) for row in rows] == expected[:None if k == 2 else -1]
    assert rows[0].what == f"LeNet, {k} processes, nothing exchanged" and "80%" in table(rows[1:2])


@pytest.mark.parametrize("gpus", [0, 2])
def test_our_buckets_are_compared_with_the_library_and_with_doing_without(gpus, monkeypatch):
    monkeypatch.setattr(run, "all_cores", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    times = {ALONE: 1.6, "own buckets": 2, "1 device": 4, "1 device, all cores": 5, "processes": 1, "tensor by tensor": 3}
    rows = run.step_rows("a net", 2, "nccl" if gpus else "gloo", [{name: [float(s)] * 3 for name, s in times.items()}])
    expected = [(2.5, 2), (2, 2.5), (2.5, 3.125), (0.5, None), (1.5, None), (4, 2.5)]
    if gpus:
        del expected[2]
    assert [(row.ratio, row.limit) for row in rows] == expected
    assert all(row.what == "OwnDDP, a net, 2 processes" for row in rows[1:-1]) and rows[-1].what == "DDP, a net, 2 processes"


# What is refused


def spoiled(allreduce):
    def wrong(data):
        allreduce(data)
        data[-1][-1] += 0.01

    return wrong


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_allreduce_that_is_wrong_in_one_number_on_one_device_is_not_timed(name, monkeypatch):
    monkeypatch.setattr(cases.dist, "all_reduce", lambda x: x.copy_(cases._pattern(len(x)) * (1 + 2 + 4)))
    assert set(on_this_rank(0, cases.allreduce_cases(0, 3, 100))) == {"processes", *ALGORITHMS, "one pass"}
    monkeypatch.setitem(ALGORITHMS, name, spoiled(ALGORITHMS[name]))
    with pytest.raises(WrongResult, match=f"{name} leaves a wrong sum in buffer 2 of 3"):
        on_this_rank(0, cases.allreduce_cases(0, 3, 100))


def test_a_wrong_sum_between_the_processes_is_not_timed(monkeypatch):
    monkeypatch.setattr(cases.dist, "all_reduce", lambda x: None)
    with pytest.raises(WrongResult, match="between the processes leaves a wrong sum"):
        on_this_rank(1, cases.allreduce_cases(1, 2, 100))


@pytest.fixture
def lenet_cases(monkeypatch):
    device_step = cases.device_step
    torch.manual_seed(0)
    make_gpus_reproducible()  # as in a bench
    monkeypatch.setattr(cases, "ddp_step", lambda net, X, y, rank, k: device_step(X, y, 3))  # this process is in no group
    return cases.lenet_cases


def test_training_steps_that_are_those_of_one_worker_are_timed(lenet_cases):
    assert len(on_this_rank(0, lenet_cases(0, 2))) == 6


@pytest.mark.parametrize("broken, names", [("plain_step", ["plain loop"]), ("ddp_step", ["processes"]),
                                           ("_module_step", [ALONE]),
                                           ("device_step", ["1 device", "k devices", "1 device, all cores"])])
def test_a_training_step_that_is_not_that_of_one_worker_is_not_timed(broken, names, lenet_cases, monkeypatch):
    right = getattr(cases, broken)

    def wrong_step(*args):
        step, replicas = right(*args)
        return lambda: (step(), replicas[-1][0].data.mul_(1.001)), replicas

    monkeypatch.setattr(cases, broken, wrong_step)
    makers = lenet_cases(0, 2)
    for name in names:
        with pytest.raises(WrongResult, match=f"after a step of LeNet by {name}, replica .* away from what it should be"):
            makers[name]()


def test_a_block_is_several_calls_and_waits_for_the_slowest_process_only_where_nothing_is_exchanged():
    said = []
    made = cases.in_blocks({name: lambda name=name: said.append(name) for name in ("processes", ALONE)}, 3, lambda: said.append("wait"))
    for block in made.values():
        block()
    assert said == ["processes"] * 3 + [ALONE] * 3 + ["wait"]


def test_the_cases_between_processes_take_turns_and_no_rank_goes_on_before_the_last_case_is_done():
    said = []
    made = {name: lambda name=name: said.append(name) for name in ("processes", "1 device", ALONE)}
    times = cases.time_in_turns(made, 2, (), lambda: said.append("wait"), turn=1)
    first, second = [ALONE, "processes", "1 device"], ["processes", ALONE, "1 device"]
    assert said == [word for name in first + second for word in ("wait", name)] + ["wait"]
    assert {name: len(seconds) for name, seconds in times.items()} == dict.fromkeys(made, 2)


def test_what_is_not_a_number_is_not_near():
    nothing = torch.full((3,), math.nan)
    with pytest.raises(WrongResult):
        cases.expect_sum("a", [nothing], 2)
    with pytest.raises(WrongResult):
        cases.expect_replicas("a", [[nothing]], [torch.ones(3)])


def test_loaders_that_give_different_batches_are_not_timed(monkeypatch):
    images = torch.randint(256, (300, 1, 28, 28), dtype=torch.uint8)
    batches = Batches(images, torch.arange(300).remainder(10).byte(), 256)
    times = single.loader_times(batches, repeats=2)
    assert {name: len(seconds) for name, seconds in times.items()} == {"ours": 2, "torchvision": 2}

    def shifted(batches, right=single.torchvision_dataset):
        dataset = right(batches)
        dataset.targets = dataset.targets.roll(1)
        return dataset

    monkeypatch.setattr(single, "torchvision_dataset", shifted)
    with pytest.raises(WrongResult, match="different"):
        single.loader_times(batches, repeats=2)


# How it is shown


def test_the_table_is_markdown_with_columns_of_equal_width():
    assert table(REPORT.rows) == """\
| group     | ours                      | against           |   times as fast |       builds |        range |   limit |   of it |
|:----------|:--------------------------|:------------------|----------------:|-------------:|-------------:|--------:|--------:|
| allreduce | allreduce_ring, 2 devices | gloo, 2 processes |            4.88 | 4.70 to 5.10 | 4.30 to 15.2 |    9.84 |     50% |
| data      | ours                      | torchvision       |             128 |   128 to 128 |  90.0 to 150 |         |         |"""
    assert table([ROW]).startswith("| ours "), "a single group does without its name"


def test_the_finding_counts_as_faster_only_what_is_so_in_all_of_the_range_and_names_the_most():
    assert finding([ROW]) == "4.88 times as fast; the range goes from 4.30 to 15.2."
    slow, even = ROW._replace(ratio=0.5, low=0.4, high=0.6), ROW._replace(ratio=1.1, low=0.9, high=1.2)
    fast = ROW._replace(what="blocks", ratio=12.34)
    assert finding([fast, ROW]) == (
        "Of 2 rows: faster in 2; the ratios go from 4.88 to 12.3 (blocks, against gloo, 2 processes).")
    assert finding([slow, even, fast, ROW]).startswith(
        "Of 4 rows: faster in 2, slower in 1, no difference in 1; the ratios go from 0.50 to 12.3 (")


# The command


def test_json_goes_to_the_file_beside_the_table_or_takes_its_place(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(run, "bench", lambda quick: REPORT)
    run.command(False, str(tmp_path / "new.json"))
    assert table(REPORT.rows) in capsys.readouterr().out
    assert from_json((tmp_path / "new.json").read_text("utf8")) == REPORT
    run.command(False, "-", against=str(tmp_path / "new.json"))
    said = capsys.readouterr()
    assert from_json(said.out) == REPORT and said.err.endswith("new.json: 0 of 2 rows\n")


@pytest.mark.parametrize("problem, code", [(KeyboardInterrupt(), 130), (RankError("rank 1 died"), "rank 1 died"),
                                           (WrongResult("a wrong sum"), "a wrong sum"), (TimeoutError("late"), "late")])
def test_a_run_that_ends_early_stores_nothing_and_leaves_an_old_file_as_it_was(
        problem, code, monkeypatch, tmp_path, capsys):
    def fail(quick):
        raise problem

    monkeypatch.setattr(run, "bench", fail)
    (tmp_path / "old.json").write_text("old")
    for file in (tmp_path / "old.json", tmp_path / "new.json"):
        with pytest.raises(SystemExit) as end:
            run.command(False, str(file))
        assert end.value.code == code if isinstance(code, int) else end.value.code.endswith(code)
    assert [file.name for file in tmp_path.iterdir()] == ["old.json"]
    assert (tmp_path / "old.json").read_text() == "old" and capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.weekly
def test_a_quick_run_measures_every_group(root: Path) -> None:
    ended = subprocess.run([sys.executable, "-W", "error", "book/lab/bench.py", "--quick", "--json"], cwd=root, capture_output=True,
                           text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "2 processes: large, small, lenet\nrank 0: large done\n" in ended.stderr
    report = from_json(ended.stdout)
    assert set(GROUPS) == {row.group for row in report.rows} and len(report.rows) >= 16
    assert [GROUPS.index(row.group) for row in report.rows] == sorted(GROUPS.index(row.group) for row in report.rows)
    assert len({row[:3] for row in report.rows}) == len(report.rows), "two rows have one name"
    for row in report.rows:
        assert 0 < row.low <= row.ratio <= row.high < math.inf and len(row.builds) == report.builds == 2, row
        assert row.limit is None or 0 < row.limit < math.inf
    assert report.machine["data"].startswith("Fashion-MNIST, 3,584") and all(report.machine.values())
    cores = re.search(r"(\d+) cores", report.machine["processor"])[1]
    assert cores == str(torch.get_num_threads()) or torch.cuda.is_available()


# The page


def test_the_stored_run_is_a_full_one_on_real_data_and_names_no_one(root: Path):
    text = (root / "book" / "_data" / "bench.json").read_text("utf8")
    report = from_json(text)
    assert {row.group for row in report.rows} == set(GROUPS) and (report.builds, report.repeats) == (4, 4)
    assert {int(k) for row in report.rows for k in re.findall(r"(\d) devices", row.what)} == {2, 4, 8}
    assert report.machine["data"].startswith("Fashion-MNIST")
    assert socket.gethostname() not in text and not re.search(r"/(home|root|tmp|work|Users)\b|20\d\d-\d\d", text)
