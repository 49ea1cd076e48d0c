"""Tests of d2lpar.pages.scaling: the tables belong together, and the scores are those of an independent program."""

from collections import Counter

import pytest

from d2lpar.pages.scaling import published_scaling, reads_data, sister_runs, typical_error

RUNS = published_scaling()


def test_there_are_151_runs_from_twelve_sources():
    assert len(RUNS) == len({run.name for run in RUNS}) == 151 and len({run.source for run in RUNS}) == 12
    assert (min(run.devices for run in RUNS), max(run.devices for run in RUNS)) == (2, 4608)
    assert all(0 < run.low <= run.law <= run.high <= 1 for run in RUNS)
    assert all(0.1 < run.efficiency < 1.1 and run.linear_s > 0 and run.url for run in RUNS)
    assert Counter(run.link for run in RUNS) == {"PCIe": 20, "NVLink": 69, "network": 62}


def test_the_scores_are_those_of_the_program_that_came_with_the_data():
    """It printed 11.6%, 22.2%, 22.2% and 10.2%, and 68% inside the interval."""
    scores = [typical_error(RUNS, predict) for predict in (
        lambda run: run.law, lambda run: run.hidden, lambda run: 1.0, lambda run: 0.9)]
    assert [round(100 * score, 1) for score in scores] == [11.6, 22.2, 22.2, 10.2]
    assert round(100 * sum(run.low <= run.efficiency <= run.high for run in RUNS) / 151) == 68


def test_one_run_by_hand():
    """ResNet-101 on 8 V100: 171 ms alone, and 179 ms together."""
    [run] = [run for run in RUNS if run.name == "A1-03"]
    assert run.linear_s == pytest.approx(0.171) and run.added_s == pytest.approx(0.008, rel=2e-2)
    assert run.law_s == pytest.approx(2 * 7 * (3.4e-6 + 178e6 / 8 / 130e9), rel=1e-2)


def test_a_run_with_a_smaller_batch_has_less_work():
    [run] = [run for run in RUNS if run.name == "A8-03"]  # 512 images, shared by four devices
    assert run.linear_s == pytest.approx(0.2447 / 4) and run.batch == 128


@pytest.mark.parametrize("data, reads", [("real", True), ("real (TFRecord)", True), ("synthetic", False),
                                         ("real, small, in memory", False), ("real text, not a bottleneck", False),
                                         ("real, resident on the GPU", False), ("encoded ahead, not a bottleneck", False)])
def test_what_reads_data_in_a_step(data, reads):
    assert reads_data(data) == reads


def test_sisters_differ_in_batch_or_precision_and_in_nothing_else():
    pairs = sister_runs()
    assert len(pairs) == 52 and all((other, one) in pairs for one, other in pairs)
    for one, other in pairs:
        assert one.framework == other.framework and one.devices == other.devices and one.gpu == other.gpu
        assert (one.batch, one.precision) != (other.batch, other.precision)
    assert not any({one.name, other.name} == {"A4-04", "A4-06"} for one, other in pairs), "two loaders, one batch"
