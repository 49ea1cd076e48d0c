"""What `watch` says it has judged, from records: catches an all-clear for what nobody looked at."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from d2lpar._command_line import as_json
from d2lpar.diagnosis.compare import SUBJECTS, Diagnosis
from d2lpar.diagnosis.coverage import cover
from d2lpar.diagnosis.judging import Ran, _comparable, _draw_the_same, _judge_data, judge
from d2lpar.diagnosis.recording import Step
from d2lpar.diagnosis.watching import settings_left_out

ONE, NONE = torch.ones(8), torch.zeros(8)


def a_step(own: str = "w", held: str = "w", moves: str = "w", optimizer: int = 0, **data: Any) -> dict[str, Any]:
    """A step of an optimizer that holds and moves some of the parameters w and v, after a backward pass through some."""
    own_grads = {name: ONE for name in own}
    step = Step(before={"w": ONE, "v": ONE}, gradients=own_grads, unclipped=own_grads, passes=[own_grads] if own else [],
                thrown_away=0, stale=False, after={name: NONE if name in moves else ONE for name in "wv"},
                trainable=frozenset("wv"), replaced=frozenset(), rates=[0.1], others=[], held=frozenset(held), scale=1.0,
                forwards=1, examples=[b"an example"], micro_batches=[1], exchanging=1, wrapped=frozenset("wv"),
                bypassed=frozenset(), lost=frozenset(), buffers={}, lines={}, eps=1e-7, size=8, reduced=0)
    return {"step": step, "is_sharded": False, "optimizer": optimizer, "never_trained": frozenset()} | data


def covered(*steps: dict[str, Any], k: int = 2, other: list[dict[str, Any]] | None = None, allow: str = "",
            **end: Any) -> Diagnosis:
    """What is known of a run of k ranks that all take these steps, or the last of them `other` ones."""
    last = {"enough": True, "resumed": "", "settings": "", "networks": {"Net": ["w"], "Net2": ["v"]}} | end
    records = [[("step", data) for data in (steps if rank < k - 1 or other is None else other)] + [("end", last)]
               for rank in range(k)]
    ran, found = Ran(k, records), Diagnosis("a run", [allow], watched=True)
    cover(ran, _comparable(ran.steps), found)
    return found


def test_two_steps_of_the_network_that_is_trained_are_enough_for_an_all_clear():
    found = covered(a_step(), a_step())
    assert found.ok and found.coverage["exchange"].state == "judged" and found.coverage["resuming"].state == "not seen"


@pytest.mark.parametrize("found, why", [
    (covered(a_step()), "only one step of the network Net"),
    (covered(a_step(), a_step(), k=1), "only one rank"),
    (covered(a_step(is_sharded=True), a_step(is_sharded=True)), "sharded"),
    (covered(a_step(), a_step(), other=[a_step(), a_step(is_sharded=True)]), "sharded"),
    (covered(a_step(), a_step(), other=[a_step(optimizer=1), a_step()]), "cannot be matched"),
    (covered(a_step(), a_step(), other=[]), "cannot be matched"),
    (covered(a_step("wv", moves="wv"), a_step("wv", moves="wv")), "no optimizer step that uses the gradients of the network Net2 was seen"),
    (covered(a_step(own="", held=""), a_step(own="", held="")), "no gradient was seen before the exchange"),
    (covered(a_step(own=""), a_step(own=""), a_step()), "only one step of the network Net"),
    (covered(a_step(), a_step(), settings="a file says FSDP"), "a file says FSDP"),
], ids=lambda x: "" if isinstance(x, Diagnosis) else x[:40])
def test_without_two_steps_of_each_trained_network_there_is_no_all_clear(found: Diagnosis, why: str):
    assert found.exit_code == 3 and not found.ok and found.unjudged == ["start", "exchange", "update"]
    assert why in found.coverage["update"].why == found.coverage["exchange"].why
    text = " ".join(str(found).split())
    assert text.startswith("not judged: start, exchange, update (") and "no fault found in what was judged" in text


def test_a_network_that_changes_between_the_steps_of_the_other_is_trained():
    by_hand = [a_step("wv"), a_step("wv")]
    by_hand[1]["step"] = by_hand[1]["step"]._replace(before={"w": NONE, "v": NONE}, after={"w": NONE, "v": NONE})
    found = covered(*by_hand)
    assert found.exit_code == 3 and "the gradients of the network Net2" in found.coverage["update"].why


def test_a_network_that_gets_gradients_and_stays_as_it_is_is_not_trained():
    assert covered(a_step("wv"), a_step("wv")).ok


def test_the_only_step_of_a_script_is_all_that_there_is_to_judge():
    assert covered(a_step(), enough=False).ok


def test_steps_without_own_gradients_are_counted():
    unseen = a_step(own="")
    unseen["step"] = unseen["step"]._replace(gradients={"w": ONE})
    found = covered(a_step(), unseen, a_step())
    assert found.ok and found.coverage["update"] == ("in part", "only 2 of 3 steps of the network Net")
    by_momentum = covered(a_step(), a_step(own=""), a_step())  # of another part of the network: there is no gradient
    assert by_momentum.coverage["update"] == ("judged", "")


def test_clipping_is_judged_as_far_as_the_steps_and_only_if_it_was_called():
    clipped = [a_step(), a_step()]
    for data in clipped:
        data["step"] = data["step"]._replace(lines={"clip": "train.py, line 9"})
    assert covered(a_step(), a_step()).coverage["clipping"].state == "not seen"
    assert covered(*clipped).coverage["clipping"] == ("judged", "")
    found = covered(*[data | {"is_sharded": True} for data in clipped])
    assert found.coverage["clipping"] == found.coverage["exchange"] == ("not judged", "the parameters are sharded as by tensor parallelism or FullyShardedDataParallel")


def test_an_exchange_inside_the_optimizer_is_judged_by_the_update():
    found = Diagnosis("a run", watched=True)
    found.say_by_name("exchanged inside step()")
    ran = Ran(2, [[("step", a_step()), ("step", a_step()), ("end", {"enough": True, "networks": {"Net": ["w"]}})]] * 2)
    cover(ran, _comparable(ran.steps), found)
    assert found.ok and found.coverage["exchange"] == ("in part", "only by comparing the parameters after step(), because step() exchanges the gradients itself")


def test_a_resumed_run_is_not_judged_unless_that_is_allowed():
    assert covered(a_step(), a_step(), resumed="train.py, line 3").unjudged == ["resuming"]
    assert covered(a_step(), a_step(), resumed="train.py, line 3", allow="unjudged").ok


def test_a_fault_counts_even_if_not_everything_was_judged():
    found = covered(a_step(), allow="unjudged")
    found.add("all ranks save", "all ranks write the same file (net.pt)", "Save on rank 0 only", " [train.py, line 7: `save()`]")
    assert found.exit_code == 1 and str(found).startswith("FAULT FOUND: ")
    assert "not judged: start, exchange, update (only one step" in " ".join(str(found).split())


# the data


def of_data(*passes: dict[str, Any], at_ends: Any = {0: "a"}, examples: Any = b"", on: tuple[int, ...] = (0, 1)) -> Diagnosis:  # noqa: B006
    """What is known of the data of two ranks that draw their halves of eight examples in these passes."""
    records: list[list[tuple[str, dict]]] = []
    for rank in range(2):
        loader = {"number": 0, "line": "train.py, line 5: `for X in loader:`", "sampler": "DistributedSampler", "examples": 8, "drawn": 4,
                  "batches": 2, "at_ends": at_ends, "is_random": False, "distributed": True, "drops": False}
        steps = [a_step() | {"terms": []} for _ in range(2)]
        for i, data in enumerate(steps):
            data["step"] = data["step"]._replace(examples=[examples + bytes([rank, i])] if examples is not None else [])
        records.append([("group", {})] + [("loader", loader)] * (rank in on) + [("step", data) for data in steps] + [
            ("pass", {"number": 0, "epoch": i, "trained": True, "steps": 2, "first_step": 0, "is_whole": True, "state": "",
                      "indices": [[rank + 4 * (i % 2), rank + 2], [rank + 4 - 4 * (i % 2), rank + 6]]} | one)
            for i, one in enumerate(passes)] * (rank in on))
    found = Diagnosis("a run", watched=True)
    _judge_data(Ran(2, records), found)
    return found


def test_two_whole_epochs_are_judged_and_one_in_part():
    assert of_data({}, {}).coverage["data"] == ("judged", "") and of_data({}, {}).ok
    assert "only one whole epoch" in of_data({}).coverage["data"].why and of_data({}).coverage["data"].state == "in part"


@pytest.mark.parametrize("found, why", [
    (of_data({"is_whole": False}), "no epoch was seen to its end"), (of_data({"indices": []}), "a stream has no indices"),
    (of_data({}, {}, on=(0,)), "only some ranks draw from the loader"), (of_data(on=()), "no DataLoader was used in training"),
    (of_data({}, {}, at_ends=None), "the examples of the data set could not be compared"),
], ids=lambda x: "" if isinstance(x, Diagnosis) else x)
def test_data_of_which_only_a_part_is_known_are_judged_in_part(found: Diagnosis, why: str):
    assert found.ok and found.coverage["data"].state == "in part" and why in found.coverage["data"].why


def test_a_loader_whose_epochs_and_minibatches_are_both_unknown_is_not_judged():
    found = of_data({"is_whole": False}, examples=None)
    assert found.exit_code == 3 and found.unjudged == ["data"]
    assert "no tensor with a row for each example" in found.coverage["data"].why
    assert of_data(on=(), examples=None).ok  # there is no loader that it could have been


def test_a_stream_whose_ranks_see_the_same_examples_in_different_orders_is_found():
    def of_streams(rows: list[list[bytes]]) -> list[str]:
        records = []
        for mine in rows:
            loader = {"number": 0, "line": "", "sampler": "None", "examples": None, "drawn": None, "batches": None, "at_ends": None,
                      "is_random": False, "distributed": False, "drops": False}
            steps = [a_step() for _ in mine]
            for data, row in zip(steps, mine):
                data["step"] = data["step"]._replace(examples=[row])
            records.append([("loader", loader), *(("step", data) for data in steps), ("pass", {
                "number": 0, "epoch": 0, "trained": True, "steps": len(mine), "first_step": 0, "is_whole": True, "indices": [], "state": ""})])
        found = Diagnosis("a run", watched=True)
        _judge_data(Ran(2, records), found)
        return list(found.faults)

    assert of_streams([[b"1", b"2", b"3"], [b"3", b"1", b"2"]]) == ["same examples on all ranks"]
    assert of_streams([[b"1", b"2", b"3"], [b"3", b"1", b"4"]]) == [] == of_streams([[b"1", b"1"], [b"1", b"1"]])


def test_data_sets_of_the_ranks_own_are_no_different_data_sets():
    own = [{0: "a"}, {0: "b"}]

    def judged(is_cut: bool, indices: list[list[int]]) -> list[str]:
        records = [[("group", {}), ("loader", {
            "number": 0, "line": "", "sampler": "AnySampler", "examples": 4, "drawn": 4, "batches": 1, "at_ends": own[rank], "is_random": False,
            "distributed": is_cut, "drops": False}), ("pass", {"number": 0, "epoch": 0, "trained": True, "steps": 1, "first_step": 0,
                                                               "is_whole": True, "indices": [indices[rank]], "state": ""})] for rank in range(2)]
        found = Diagnosis("a run", watched=True)
        judge(Ran(2, records), found)
        return list(found.faults)

    assert judged(False, [[0, 1, 2, 3], [3, 2, 1, 0]]) == []  # each rank goes through all of its own set
    assert judged(False, [[0, 1], [2, 3]]) == judged(True, [[0, 1], [2, 3]]) == ["different data sets"]


def test_the_same_random_numbers_on_all_ranks_are_noticed_if_the_examples_differ():
    def same(*states: str, other: str = "", passes: str = "1111", examples: tuple[bytes, bytes] = (b"a", b"b")) -> bool:
        records = []
        for rank in range(2):
            steps = [a_step(random_state=state, passes=int(epoch)) for state, epoch in zip(other if rank and other else states, passes)]
            for data in steps:
                data["step"] = data["step"]._replace(examples=[examples[rank], examples[rank] + b"2"])
            records.append([("step", data) for data in steps])
        return _draw_the_same(Ran(2, records), "PyTorch's default generator")

    assert same("a", "b", "c")
    assert not same("a", "b", "c", other="abd") and not same("a", "a", "b")  # others on rank 1; nothing drawn in step 2
    assert not same("a", "b", "c", examples=(b"a", b"a"))  # that is worse, and has a name of its own
    assert not same("a", "b", "c", passes="123") and not same("a", "b")  # a sampler draws when an epoch begins


# a trainer's own launcher


def test_a_configuration_that_accelerate_launch_would_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    file = tmp_path / "accelerate" / "default_config.yaml"
    file.parent.mkdir()
    file.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: 'bf16'\n")
    assert settings_left_out() == ""  # nothing has imported accelerate
    monkeypatch.setitem(sys.modules, "accelerate", json)
    assert "distributed_type: FSDP" in settings_left_out()
    file.write_text("distributed_type: MULTI_GPU\nmixed_precision: 'no'\n")
    assert settings_left_out() == ""
    file.write_text("distributed_type: NO\nmixed_precision: bf16\n")
    assert "mixed_precision: bf16" in settings_left_out() and "-m d2lpar watch" in settings_left_out()
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # it was started by accelerate launch
    assert settings_left_out() == ""
    file.write_text("distributed_type: FSDP\n")  # which accelerate launch leaves out on a CPU
    assert "distributed_type: FSDP" in settings_left_out() and "-m d2lpar watch" not in settings_left_out()


# JSON


def test_json_has_the_same_keys_whatever_the_exit_code():
    found = covered(a_step(), a_step())
    fault = covered(a_step(), a_step())
    fault.add("hangs", "some ranks did not finish in time (rank 1 is at `x`, line 7 of train.py)", "Do something")
    error, right, wrong = (json.loads(text) for text in (as_json(2, error="no such file"), as_json(0, **found.as_dict()),
                                                          as_json(1, **fault.as_dict())))
    assert error.keys() == right.keys() == wrong.keys() and {"schema", "d2lpar", "torch", "exit", "ok", "seconds"} < right.keys()
    assert (error["ok"], right["ok"], wrong["ok"]) == (False, True, False) and error["error"] == "no such file"
    assert list(right["coverage"]) == [name for name in SUBJECTS if name in right["coverage"]]
    assert wrong["findings"] == [{"name": "hangs", "fault": True, "ranks": [1], "file": "train.py", "line": 7, "do": "Do something",
                                  "seen": "some ranks did not finish in time (rank 1 is at `x`, line 7 of train.py)"}]


def test_a_finding_keeps_its_own_line_when_its_loader_has_one():
    found = Diagnosis("a run", watched=True)
    found.add("all ranks save", "all ranks write the same file", "Save on rank 0 only", " [train.py, line 7: `save()`]")
    found.add("repeated examples", "some examples appear twice", "Look at the sampler")
    for name in list(found.faults):
        found.place(name, "train.py, line 5: `for X in loader:`")
    assert [finding["line"] for finding in found.as_dict()["findings"]] == [7, 5]
    assert "appear twice [train.py, line 5: `for X in loader:`]. Look at" in found.faults["repeated examples"]
