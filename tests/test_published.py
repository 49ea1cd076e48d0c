"""Tests of d2lpar.pages.published: the file is whole, and what a chapter quotes is in it."""

import csv
import hashlib
from collections import Counter
from pathlib import Path
from statistics import mean, median

import pytest

from d2lpar.pages import published
from d2lpar.pages.published import published_controls, published_pairs, published_runs
from d2lpar.pages.results import stored_records


def test_there_are_301_trainings_of_one_recipe_and_each_has_ten_accuracies():
    trainings = published_runs()
    settings = Counter((t.framework, t.num_gpus, t.batch_size, t.lr) for t in trainings)
    assert settings == {("MXNet", 1, 256, 0.1): 100, ("MXNet", 2, 512, 0.2): 100,
                        ("PyTorch", 1, 256, 0.1): 50, ("PyTorch", 2, 512, 0.2): 51}
    assert all(len(t.accuracies) == 10 and all(0 < a < 1 for a in t.accuracies) for t in trainings)
    assert len({(t.accuracies, t.num_gpus) for t in trainings}) == 301  # no training twice


def test_the_file_is_the_one_that_was_gathered():
    content = Path(published.__file__).with_name("published_runs.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == "eacbaffdbf7842d19feb6daf7a0c22b62b7f200d4c184bc82ef993867921ce11"


def test_a_page_that_was_looked_up_by_hand_prints_what_the_file_says():
    [one, two] = [t for t in published_runs() if t.commit == "1b94b19315eef593e6a29a3321676059103aa6f7"]
    assert (one.epoch_s, two.epoch_s, round(one.accuracies[-1], 2), round(two.accuracies[-1], 2)) == (14.0, 8.8, 0.90, 0.89)
    assert one.address == ("https://github.com/d2l-ai/d2l-pytorch-colab/blob/1b94b19315eef593e6a29a3321676059103aa6f7/"
                           "chapter_computational-performance/multiple-gpus-concise.ipynb")


def test_a_pair_is_one_page_on_one_gpu_and_on_two():
    assert {name: len(published_pairs(name)) for name in ("MXNet", "PyTorch")} == {"MXNet": 100, "PyTorch": 50}
    assert (14.0, 8.8) in published_pairs("PyTorch")  # the page that was looked up by hand


def test_even_the_best_epochs_of_pytorch_are_lower_on_two_gpus():
    best = {k: median(max(t.accuracies) for t in published_runs() if (t.framework, t.num_gpus) == ("PyTorch", k))
            for k in (1, 2)}
    assert {k: round(accuracy, 3) for k, accuracy in best.items()} == {1: 0.921, 2: 0.881}


def falling(runs, by=0.05):
    """Epochs from the fifth on that end `by` or more below the one before, all such epochs, runs with one, and all."""
    drops = [[round(a - b, 3) >= by for a, b in zip(run[3:], run[4:])] for run in runs]
    return sum(map(sum, drops)), sum(map(len, drops)), sum(map(any, drops)), len(runs)


def test_the_control_file_is_the_one_that_was_gathered_without_the_eight_of_mxnet_that_pytorch_pages_showed_first():
    content = Path(published.__file__).with_name("controls.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == "25463b2a6b27c865be5bcf0feb59916bb45a85f18e5d50985ae6bd3421f6ed7a"
    controls = published_controls()
    assert Counter(c.framework for c in controls) == {"MXNet": 600, "PyTorch": 263}
    assert all(len(c.accuracies) == 10 and all(0 < a < 1 for a in c.accuracies) for c in controls)
    assert len({(c.page, c.accuracies) for c in controls}) == len(controls) == 863, "no training twice"
    assert controls[0].page == "alexnet" and controls[0].address.endswith(
        "d2l-en-colab/blob/8e3867dd/chapter_convolutional-modern/alexnet.ipynb")


@pytest.mark.parametrize("pages, mxnet, pytorch", [
    (["resnet"], (38, 468, 33, 78), (21, 180, 17, 30)), (["densenet"], (72, 396, 50, 66), (33, 186, 22, 31)),
    (["batch-norm"], (179, 1092, 130, 182), (35, 432, 27, 72)), (["vgg", "alexnet"], (0, 930, 0, 155), (0, 390, 0, 65)),
    (["googlenet", "nin"], (16, 714, 14, 119), (4, 390, 4, 65))])
def test_the_falls_of_the_controls_are_those_that_were_counted_by_other_code(pages, mxnet, pytorch):
    for framework, right in (("MXNet", mxnet), ("PyTorch", pytorch)):
        runs = [c.accuracies for c in published_controls() if c.page in pages and c.framework == framework]
        assert falling(runs) == right


def published_lenet() -> dict[str, list[dict[str, str]]]:
    """The rows of the file, by framework."""
    with open(Path(published.__file__).with_name("published_lenet.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row for row in rows if row["framework"] == name] for name in ("PyTorch", "MXNet")}


def test_the_file_of_lenet_is_the_one_that_was_gathered_and_holds_a_page_that_was_looked_up_by_hand():
    content = Path(published.__file__).with_name("published_lenet.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == "875a315cf5bc7845a7863a3767673803834135975c1b65f1a0be88e96f0b6ee0"
    [page] = [row for row in published_lenet()["PyTorch"] if row["commit"] == "f8543710a7046a947464f0fa3ad0f8619d7613d3"]
    assert [page[name] for name in ("accuracy_1", "seconds_1", "accuracy_2", "seconds_2")] == ["0.83", "3.0", "0.84", "2.8"]


def entry(values: list[float], digits: int) -> str:
    """As the page on where numbers were measured writes it: the median, with the lowest and the highest in parentheses."""
    low, middle, high = (f"{x:.{digits}f}" for x in (min(values), median(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({low} to {high})"


def table_row(name: str, runs: list[tuple[float, float, float, float]]) -> str:
    """A line of the table, from the accuracy and the seconds on one device, and the same on two."""
    accuracy_1, seconds_1, accuracy_2, seconds_2 = zip(*runs)
    cells = [entry(accuracy_1, 2), entry(accuracy_2, 2), entry(seconds_1, 1), entry(seconds_2, 1),
             entry([two / one for one, two in zip(seconds_1, seconds_2)], 2)]
    return f"| {' | '.join([name, *cells])} |\n"


def test_the_table_of_lenet_holds_what_was_published_and_what_was_recorded(root: Path):
    text = (root / "book" / "measured.md").read_text("utf8")
    for framework, pages in published_lenet().items():
        runs = [tuple(float(page[f"{what}_{k}"]) for k in (1, 2) for what in ("accuracy", "seconds")) for page in pages]
        assert table_row(f"{framework} on GPUs, {len(pages)} builds", runs) in text
    own: dict[int, list[float]] = {}
    for record in stored_records("full_size")[1]:
        if record["run"]["part"] == "lenet":  # one device comes before two
            words = "one device" if record["run"]["num_devices"] == 1 else "two"
            assert f"from {min(record['epoch_s']):.1f} to {max(record['epoch_s']):.1f} s on {words}" in text
            own.setdefault(record["run"]["seed"], []).extend([record["accuracies"][-1], mean(record["epoch_s"])])
    assert table_row(f"this book on CPU cores, {len(own)} run{'s' * (len(own) > 1)} each", list(own.values())) in text
