"""The scripts of tests/watch/trainers.py and the tool that runs them, as far as they need no trainer."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

import try_trainers
from d2lpar.diagnosis.feed import FEED_NAMES
from d2lpar.diagnosis.rules import NAMES
from try_trainers import TRAINERS, Verdict, counts_of, is_as_expected, line_of, of_trainer, scripts, stored, verdict_on

TOOLS = "(book/authors.md, The tools)"
SAID = {"let through": Verdict(0, [], ["padded"], {"data": {"state": "judged", "why": ""}}, 1.0),
        "accused": Verdict(1, ["hangs"], [], {}, 1.0), "not judged": Verdict(3, [], [], {}, 1.0),
        "cannot be run": Verdict(2, ["error"], [], {}, 1.0)}


def test_twenty_scripts_are_right_and_twenty_wrong_and_every_trainer_has_both() -> None:
    every = scripts()
    for is_wrong in (False, True):
        some = [script for script in every.values() if bool(script.expected) is is_wrong]
        assert len(some) == 20, f"Keep 20 right scripts and 20 wrong ones in tests/watch/trainers.py, or change this test {TOOLS}"
        assert len({script.trainer for script in some}) == 7, f"Give each trainer a right and a wrong script in tests/watch/trainers.py {TOOLS}"


def test_every_script_compiles_and_differs_from_all_others() -> None:
    texts = {name: script.text for name, script in scripts().items()}
    assert len(set(texts.values())) == len(texts)
    for name, text in texts.items():
        compile(text, name, "exec")


def test_a_wrong_script_is_a_right_one_with_a_single_place_changed(root: Path) -> None:
    given = runpy.run_path(str(root / "tests/watch/trainers.py"))
    wrong = {name: variant for name, variant in given["VARIANTS"].items() if variant.expected}
    assert {name: len(variant.changes) for name, variant in wrong.items() if len(variant.changes) != 1} == {}, (
        f"Change a single place in each wrong script of tests/watch/trainers.py; these change more {TOOLS}")
    assert {name: variant.of for name, variant in wrong.items() if scripts()[variant.of].expected} == {}, (
        f"Make each wrong script of tests/watch/trainers.py from a right one; these are not {TOOLS}")


def test_a_replacement_that_is_not_found_exactly_once_is_refused(root: Path) -> None:
    given = runpy.run_path(str(root / "tests/watch/trainers.py"))
    for old in ("no such line", "torch"):
        given["VARIANTS"]["Fabric, changed"] = given["Variant"]("Fabric", [], [(old, "")])
        with pytest.raises(ValueError, match=f"Fabric, changed: '{old}' is .* times in Fabric, not once"):
            given["text_of"]("Fabric, changed")


def test_what_is_expected_is_the_name_of_a_finding() -> None:
    named = {name for script in scripts().values() for name in script.expected}
    assert named - {*NAMES, *FEED_NAMES} == set(), f"Expect names of rules.py or feed.py in tests/watch/trainers.py {TOOLS}"


def test_nothing_else_depends_on_a_trainer(root: Path) -> None:
    for file in ("pyproject.toml", "requirements.txt"):
        text = (root / file).read_text("utf8")
        assert [name for name in TRAINERS if name in text] == [], f"Take the trainers out of {file}: only book/tools/try_trainers.py names them {TOOLS}"


def test_the_stored_verdicts_are_those_of_all_scripts_on_the_pinned_versions(root: Path) -> None:
    known = json.loads((root / "d2lpar/pages/stored/trainers.json").read_text("utf8"))
    store = f"Run `python book/tools/try_trainers.py --store` {TOOLS}"
    every = scripts()
    assert set(known["scripts"]) == set(every), store
    assert known["versions"] | TRAINERS == known["versions"], store
    assert set(known["trainers"]) == {script.trainer for script in every.values()} | {"DDP", "fully_shard"}, store
    verdicts = {name: Verdict(one["exit"], one["faults"], one["notes"], {}, 0.0) for name, one in known["scripts"].items()}
    for trainer in {script.trainer for script in every.values()}:
        counts = counts_of(of_trainer(every, trainer), verdicts)
        assert known["trainers"][trainer] | counts == known["trainers"][trainer], store
        assert known["trainers"][trainer]["coverage"], store


def test_a_script_counts_as_what_watch_said_of_it() -> None:
    right = {name: SimpleNamespace(expected=[], trainer="A") for name in SAID}
    assert [is_as_expected([], verdict) for verdict in SAID.values()] == [True, False, False, False]
    assert counts_of(right, SAID) == {"right": 4, "let through": 1, "accused": 2, "wrong": 0, "found": 0, "named": 0, "not judged": 1}
    wrong = {name: SimpleNamespace(expected=["NaN", "hangs"], trainer="A") for name in SAID}
    counts = counts_of(wrong, SAID | {"by another name": Verdict(1, ["raises", "hangs"], [], {}, 1.0)})
    assert counts == {"right": 0, "let through": 0, "accused": 0, "wrong": 4, "found": 1, "named": 1, "not judged": 1}
    assert not is_as_expected(["hangs"], Verdict(1, ["raises", "hangs"], [], {}, 1.0)), "only the first fault counts"
    assert line_of("A", counts, 61.6) == (
        "A                    right  0 of  0 let through, wrong  1 of  4 found, named  1 of  4, not judged 1, 62 s")


def test_what_is_stored_says_how_far_each_trainers_own_script_was_judged() -> None:
    every = {"A": SimpleNamespace(expected=[], trainer="A"), "A, wrong": SimpleNamespace(expected=["hangs"], trainer="A")}
    found = stored({"python": "3"}, every, {"A": SAID["let through"], "A, wrong": SAID["accused"]}, {"DDP": SAID["let through"]})
    assert found["trainers"]["A"]["coverage"] == found["trainers"]["DDP"]["coverage"] == {"data": "judged"}
    assert found["trainers"]["A"]["named"] == 1
    assert found["scripts"]["A"] == {"exit": 0, "faults": [], "notes": ["padded"]}


@pytest.mark.parametrize("does", ["exit 1", "echo no JSON", "exec sleep 60"])
def test_a_script_without_a_verdict_counts_as_one_that_cannot_be_run(does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(try_trainers, "LIMIT_S", 1 if "sleep" in does else 50)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{does}\n", "utf8")
    python.chmod(0o755)
    verdict = verdict_on(["train.py"], tmp_path, str(python), dict(os.environ))
    assert (verdict.exit, verdict.faults) == (2, ["error"])
    assert verdict.seconds < 50, "a script that takes too long is ended"
