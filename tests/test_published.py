"""Tests of d2lpar.pages.published: the file is whole, and what a chapter quotes is in it."""

import hashlib
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from d2lpar.pages import published
from d2lpar.pages.published import QUOTED, published_trainings


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


@pytest.mark.parametrize("pair", QUOTED, ids=lambda pair: pair.name)
def test_a_quoted_pair_stands_in_the_file_with_the_accuracies_that_are_quoted(pair):
    for num_gpus, printed in zip((1, 2), pair.accuracies):
        [training] = [t for t in published_trainings() if (t.repository, t.commit, t.num_gpus) == (pair.repository, pair.commit, num_gpus)]
        assert training.accuracies[-1] == pytest.approx(printed, abs=0.0051)  # a page prints two places
        assert training.address == (f"https://github.com/{pair.repository}/blob/{pair.commit}/"
                                    "chapter_computational-performance/multiple-gpus-concise.ipynb")


def test_the_file_is_the_one_that_was_gathered():
    content = Path(published.__file__).with_name("trainings.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == "fef304ca5647f89ed8838a3056118ffbd2bae7eefbe7b6ec5b79ea2baa5ca39e"


def test_the_seconds_are_those_that_the_pages_print():
    assert [pair.seconds for pair in QUOTED] == [(14.3, 14.2), (14.0, 8.8), (13.7, 8.4), (12.2, 7.5), (12.2, 7.4)]


def test_the_chapter_that_quotes_pages_leads_to_every_one():
    texts = [notebook.read_text("utf-8") for notebook in (Path(__file__).parents[1] / "notebooks").rglob("*.ipynb")]
    addresses = {training.address for training in published_trainings() for pair in QUOTED if training.commit == pair.commit}
    assert len(addresses) == len(QUOTED) == 5
    assert any(all(f"]({address})" in text for address in addresses) for text in texts)
