"""Tests of book/lab/predict_scaling.py: what it may read, and that its stored predictions are its own."""

import csv
import random
import sys
from io import StringIO
from pathlib import Path

import pytest

import d2lpar.pages as book
from predict_scaling import compute_s, efficiency, exchange_s, main, step_s

INPUTS = Path(book.__file__).parent / "scaling_inputs.csv"


@pytest.fixture
def predicted(monkeypatch, capsys):
    """A function that gives the table which the program prints for the inputs in a file."""
    def of(path, *options):
        monkeypatch.setattr(sys, "argv", ["predict_scaling.py", str(path), *options])
        main()
        return list(csv.DictReader(StringIO(capsys.readouterr().out)))
    return of


def rows():
    """The rows of the inputs."""
    with open(INPUTS, newline="") as file:
        return list(csv.DictReader(file))


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


def test_a_row_is_predicted_without_its_name_its_source_and_its_neighbours(tmp_path, predicted):
    table = rows()
    order = random.Random(0).sample(range(len(table)), len(table))
    with open(tmp_path / "inputs.csv", "w", newline="") as file:
        out = csv.DictWriter(file, list(table[0]))
        out.writeheader()
        for i, place in enumerate(order):
            out.writerow(table[place] | {"id": i, "task": "", "source": "", "year": "", "notes": ""})
    before, after = predicted(INPUTS), predicted(tmp_path / "inputs.csv")
    for row, place in zip(after, order):
        assert list(row.values())[1:] == list(before[place].values())[1:]


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
