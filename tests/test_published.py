"""Tests of d2lpar.pages.published: the file is whole, and what a chapter quotes is in it."""

import hashlib
import re
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from d2lpar.pages import published
from d2lpar.pages.published import published_trainings


def test_there_are_301_trainings_of_one_recipe_and_each_has_ten_accuracies():
    trainings = published_trainings()
    settings = Counter((t.framework, t.num_gpus, t.batch_size, t.lr) for t in trainings)
    assert settings == {("MXNet", 1, 256, 0.1): 100, ("MXNet", 2, 512, 0.2): 100,
                        ("PyTorch", 1, 256, 0.1): 50, ("PyTorch", 2, 512, 0.2): 51}
    assert all(len(t.accuracies) == 10 and all(0 < a < 1 for a in t.accuracies) for t in trainings)
    assert len({(t.accuracies, t.num_gpus) for t in trainings}) == 301  # no training twice


@pytest.mark.parametrize("framework, num_gpus, middle, lowest, highest", [
    ("MXNet", 1, 0.93, 0.90, 0.94), ("MXNet", 2, 0.92, 0.70, 0.93), ("PyTorch", 1, 0.91, 0.85, 0.93), ("PyTorch", 2, 0.82, 0.34, 0.90)])
def test_the_final_accuracies_are_those_that_were_counted_when_the_file_was_made(framework, num_gpus, middle, lowest, highest):
    ends = [t.accuracies[-1] for t in published_trainings() if (t.framework, t.num_gpus) == (framework, num_gpus)]
    assert [round(x, 2) for x in (median(ends), min(ends), max(ends))] == [middle, lowest, highest]


@pytest.mark.parametrize("page", ["README.md", "book/index.md"])
def test_the_first_pages_tell_what_the_file_says(page, root):
    found = {k: [t.accuracies[-1] for t in published_trainings() if (t.framework, t.num_gpus) == ("PyTorch", k)] for k in (1, 2)}
    words = (root / page).read_text("utf8")
    told = re.search(r"In (\d+) published PyTorch trainings on two .* median (\.\d+); in (\d+) on one it has (\.\d+)\.", words, re.I)
    assert [float(x) for x in told.groups()] == [
        len(found[2]), round(median(found[2]), 2), len(found[1]), round(median(found[1]), 2)]


def test_the_file_is_the_one_that_was_gathered():
    content = Path(published.__file__).with_name("trainings.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == "eacbaffdbf7842d19feb6daf7a0c22b62b7f200d4c184bc82ef993867921ce11"


@pytest.mark.parametrize("framework, pages, middle, lowest, highest", [("MXNet", 100, 1.93, 1.01, 2.04), ("PyTorch", 50, 1.55, 1.45, 1.69)])
def test_the_speed_ups_are_those_that_were_counted_when_the_file_was_made(framework, pages, middle, lowest, highest):
    seconds = {}
    for t in published_trainings():
        if t.framework == framework:
            seconds.setdefault((t.repository, t.commit, t.notebook), {})[t.num_gpus] = t.epoch_s
    gains = [page[1] / page[2] for page in seconds.values() if len(page) == 2]
    assert (len(gains), *(round(x, 2) for x in (median(gains), min(gains), max(gains)))) == (pages, middle, lowest, highest)


def test_a_page_that_was_looked_up_by_hand_prints_what_the_file_says():
    [one, two] = [t for t in published_trainings() if t.commit == "1b94b19315eef593e6a29a3321676059103aa6f7"]
    assert (one.epoch_s, two.epoch_s, round(one.accuracies[-1], 2), round(two.accuracies[-1], 2)) == (14.0, 8.8, 0.90, 0.89)
    assert one.address == ("https://github.com/d2l-ai/d2l-pytorch-colab/blob/1b94b19315eef593e6a29a3321676059103aa6f7/"
                           "chapter_computational-performance/multiple-gpus-concise.ipynb")
