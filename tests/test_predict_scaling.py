"""Tests of predict_scaling and predict_with_sister in book/lab: what they may read, and that stored predictions are theirs."""

import csv
import random
import sys
from io import StringIO
from pathlib import Path

import pytest

import d2lpar.pages as book
import predict_scaling
import predict_with_sister
from d2lpar.pages.scaling import published_scaling
from predict_scaling import compute_s, efficiency, exchange_s, step_s

INPUTS = Path(book.__file__).parent / "scaling_inputs.csv"


@pytest.fixture
def predicted(monkeypatch, capsys):
    """A function that gives the table that a program prints for the inputs in a file."""
    def of(path, *options, program=predict_scaling):
        monkeypatch.setattr(sys, "argv", [program.__name__, str(path), *options])
        program.main()
        return list(csv.DictReader(StringIO(capsys.readouterr().out)))
    return of


def rows():
    """The rows of the inputs."""
    with open(INPUTS, newline="") as file:
        return list(csv.DictReader(file))


def write(path, columns, table):
    """Write a table of rows."""
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, columns)
        out.writeheader()
        out.writerows(table)


def with_sister(name, sister):
    """A row of the inputs with a different one as its sister run."""
    table, runs = {row["id"]: row for row in rows()}, {run.name: run for run in published_scaling()}
    first = float(table[sister]["baseline_throughput"])
    grown = first * runs[sister].devices / runs[sister].first_devices * runs[sister].efficiency
    return table[name] | {"sister_batch_per_device": table[sister]["batch_per_device"],
                          "sister_precision": table[sister]["precision"],
                          "sister_baseline_throughput": str(first), "sister_throughput_at_devices": str(grown)}


def sister_rows():
    """Four rows with sisters: a different batch, a different precision, both, and a run in tokens."""
    return [with_sister(*names) for names in (("A4-17", "A4-15"), ("A4-23", "A4-20"), ("A4-19", "A4-15"),
                                              ("A3-16", "A3-17"))]


def test_a_sister_at_half_the_batch_by_hand(predicted, tmp_path):
    """64 sequences took 408.3 ms alone; 32 took 213.2 ms alone, and 277.4 ms on 16 devices: 64.2 ms more."""
    row = with_sister("A4-17", "A4-15")
    write(tmp_path / "inputs.csv", list(row), [row])
    [found] = predicted(tmp_path / "inputs.csv", program=predict_with_sister)
    assert float(found["predicted_efficiency"]) == pytest.approx(408.3 / (408.3 + 64.2), abs=3e-4)


def test_a_sister_with_twice_the_bytes_by_hand(predicted, tmp_path):
    """The law says 42.7 ms for 4 bytes and 21.4 ms for 2, so 64.2 ms in the sister run become 42.9."""
    row = with_sister("A4-19", "A4-15")
    write(tmp_path / "inputs.csv", list(row), [row])
    [found] = predicted(tmp_path / "inputs.csv", program=predict_with_sister)
    assert float(found["predicted_efficiency"]) == pytest.approx(135.1 / (135.1 + 42.9), abs=1e-3)


def test_a_row_without_a_sister_gets_the_law_and_what_the_law_left_out():
    runs = published_scaling()
    [row] = [row for row in rows() if row["id"] == "A3-20"]  # reads its data
    ratios = sorted(run.efficiency / run.law for run in runs if run.reads_data)
    middle, low, high = predict_with_sister.without_sister(row)
    assert middle == pytest.approx(efficiency(row, 0) * (ratios[51] + ratios[52]) / 2) and len(ratios) == 104
    assert sum(low <= efficiency(row, 0) * ratio <= high for ratio in ratios) == pytest.approx(0.8 * 104, abs=2)


@pytest.mark.parametrize("overlap", [0, 1])
def test_the_program_gives_its_stored_predictions(overlap, predicted):
    stored = INPUTS.with_name("scaling_with_overlap.csv" if overlap else "scaling_without_overlap.csv")
    with open(stored, newline="") as file:
        before = list(csv.DictReader(file))
    now = predicted(INPUTS, "--overlap", str(overlap))
    assert [row["id"] for row in now] == [row["id"] for row in before] and len(now) == 151
    for one, two in zip(now, before):
        for column in ("predicted_efficiency", "low", "high"):
            assert abs(float(one[column]) - float(two[column])) < 1.5e-4, "rounded to four digits"
        assert 0 < float(one["low"]) <= float(one["predicted_efficiency"]) <= float(one["high"])


@pytest.mark.parametrize("program", [predict_scaling, predict_with_sister])
def test_a_row_is_predicted_without_its_name_its_source_and_its_neighbours(tmp_path, predicted, program):
    table = [*rows(), *sister_rows()]
    columns = list(table[-1])
    order = random.Random(0).sample(range(len(table)), len(table))
    blank = {"task": "", "source": "", "year": "", "notes": ""}
    write(tmp_path / "before.csv", columns, table)
    write(tmp_path / "after.csv", columns, [table[place] | {"id": str(i)} | blank for i, place in enumerate(order)])
    before, after = (predicted(tmp_path / f"{name}.csv", program=program) for name in ("before", "after"))
    for row, place in zip(after, order):
        assert list(row.values())[1:] == list(before[place].values())[1:]
    assert all(0 < float(row["low"]) <= float(row["predicted_efficiency"]) <= float(row["high"]) < 5 for row in before)


def test_two_gpus_on_a_link_of_20_gb_by_hand():
    row = rows()[0]  # ResNet-50, 25.6 million values of 4 bytes, 0.1 s
    assert (row["devices"], row["baseline_seconds_per_step"]) == ("2", "0.1")
    send_s = 2 * (3.4e-6 + 51.2e6 / 20e9)
    assert exchange_s(row, 2) == pytest.approx(send_s, rel=1e-12)
    assert efficiency(row, 0) == pytest.approx(0.1 / (0.1 + send_s), rel=1e-9)
    assert efficiency(row, 1) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("overlap", [0, 1])
def test_the_first_run_of_every_row_takes_as_long_as_it_took(overlap):
    for row in rows():
        alone_s, devices = compute_s(row, overlap, 1), int(row["baseline_devices"])
        seconds = step_s(row, devices, alone_s, overlap, 1)
        assert seconds == pytest.approx(float(row["baseline_seconds_per_step"]), rel=1e-6)


def test_sharding_sends_half_as_much_again_with_whole_parameters_freed():
    row = next(row for row in rows() if row["exchange"] == "fsdp-full" and row["gradient_bytes"] == "2")
    plain = exchange_s(row | {"exchange": "allreduce"}, 32)
    sharded = exchange_s(row, 32)
    assert 1.3 < sharded / plain < 1.5, "the bytes grow by a half, the latency does not"
