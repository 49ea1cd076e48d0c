"""Tests of d2lpar.diagnosis: right runs pass, each mistake is found by its name, and a fault is never missed."""

from __future__ import annotations

import copy
import importlib
import json
import os
import re
import sys
import textwrap
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import gate
from d2lpar import launch
from d2lpar.__main__ import main
from d2lpar.diagnosis import Diagnosis, diagnose, running
from d2lpar.diagnosis import compare as comparing
from d2lpar.diagnosis.compare import compare
from d2lpar.diagnosis.recording import record_training
from d2lpar.diagnosis.rules import RULES
from d2lpar.launch import RankGroup
from d2lpar.pages import ddp_examples
from d2lpar.pages.ddp_examples import (
    RIGHT,
    WRONG,
    broadcast,
    ddp,
    examples,
    make_net,
    mean_of_all,
    momentum_sgd,
    sum_up,
)
from d2lpar.sharding import shard_parameters

SHARED = nn.Linear(6, 4)
CASES = gate.cases(gate.TUNED)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.weekly)])
def ranks(request, group_of):
    return group_of(request.param)


@pytest.fixture(autouse=True)
def ranks_of_another_number(request, monkeypatch):
    """Where a test has ranks that the tests share, `diagnose` has such ranks too, instead of new ones of another number."""
    if "group_of" in request.fixturenames:
        group_of = request.getfixturevalue("group_of")

        def shared(k, backend):
            group = group_of(k)
            return nullcontext(group) if group.backend == backend else RankGroup(k, backend)

        monkeypatch.setattr(comparing, "RankGroup", shared)


def of(name, ranks):
    train, make_net, _ = (RIGHT | WRONG)[name]
    return diagnose(train, make_net, *examples(make_net, 54), ranks)


def each_of(table, *daily):
    """Parametrize over a table. `make test` runs only some, because the chapter on `diagnose` runs them all."""
    return pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.weekly] * (name not in daily)) for name in table])


@each_of(RIGHT, "DDP, mean loss")
def test_a_right_training_passes(name, ranks):
    found = of(name, ranks)
    assert found.ok and list(found.notes) == RIGHT[name][2] and "no fault found" in str(found), str(found)
    assert str(found).endswith("not checked: mistakes that a single device makes as well; anything after these steps")


@each_of(WRONG, "a layer replaced after wrapping")
def test_each_mistake_is_found_by_its_name(name, ranks):
    found = of(name, ranks)
    assert not found.ok and list(found.faults) == WRONG[name][2] and "FAULT" in str(found), str(found)


@pytest.mark.parametrize("table, last", [(RIGHT, "right scripts, a fault in none: True"), (WRONG, "wrong scripts, a fault in each: True")],
                         ids=["RIGHT", "WRONG"])
def test_the_manual_which_runs_each_training_shows_the_verdict_of_the_table(table, last, root):
    page = json.loads((root / "notebooks" / "appendix" / "watch_and_diagnose.ipynb").read_text("utf8"))
    shown = ["".join(output["text"]) for cell in page["cells"] for output in cell.get("outputs", []) if "text" in output]
    [*rows, end] = next(text for text in shown if f"{last}\n" in text).splitlines()
    names = {name: ", ".join(names if table is RIGHT else names[:1]) for name, (_, _, names) in table.items()}
    assert rows == [f"{name:{40 if table is RIGHT else 38}} {said}" for name, said in names.items()], (
        "Run the page that prints the table again: python book/tools/run_notebooks.py watch_and_diagnose "
        "(book/authors.md, Add a rule to `diagnose` and `watch`)")
    assert end == f"{len(table)} {last}"


def test_each_rule_is_met_by_a_training():
    met = {name for _, _, names in [*RIGHT.values(), *WRONG.values()] for name in names}
    met |= {name for case in CASES.values() for name in case.get("names", [])}
    assert [rule.name for rule in RULES if rule.stage != "watch" and rule.name not in met] == []


DAILY = {name: case for name, case in CASES.items() if case.get("daily")}  # one of each kind; make gate runs all


@pytest.mark.parametrize("name", DAILY)
def test_a_script_of_each_kind_of_report_gets_its_verdict(name, group_of):
    verdict = gate.verdict_on(gate.TUNED, name, group_of(2))
    assert gate.is_as_expected(DAILY[name], verdict), verdict.text


@pytest.mark.parametrize("name", ("g22_wrong", "g23_right", "g30_wrong"))
def test_what_the_second_round_showed_and_was_mended_stays_so(name, group_of):
    verdict, case = gate.verdict_on(gate.HELD_OUT, name, group_of(2)), gate.cases(gate.HELD_OUT)[name]
    assert gate.is_as_expected(case, verdict), verdict.text


def waits_in_step_2(net, batches):
    """And sums, in all steps."""
    optimizer = momentum_sgd(broadcast(net))
    for t, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        sum_up(net)
        optimizer.step()
        if t == 1 and dist.get_rank() == 0 and dist.get_world_size() > 1:
            dist.barrier()


@pytest.mark.slow
def test_a_hang_after_the_first_step_is_told_with_its_lines_beside_what_the_first_step_showed():
    with RankGroup(2) as group:
        found = diagnose(waits_in_step_2, make_net, *examples(make_net), group, timeout_s=6)
    assert list(found.faults) == ["summed", "hangs"]
    assert "rank 0 stands in `dist.barrier()`, line " in found.faults["hangs"] and "rank 1" in found.faults["hangs"]
    assert "after 6 s" in found.faults["hangs"]


def waits_at_once(net, batches):
    if dist.get_world_size() > 1 and dist.get_rank() == 0:
        dist.barrier()
    ddp()(net, batches)


@pytest.mark.slow
def test_a_hang_in_the_first_step_is_a_fault_of_the_script():
    with RankGroup(2) as group:
        found = diagnose(waits_at_once, make_net, *examples(make_net), group, num_steps=1, timeout_s=6)
    assert list(found.faults) == ["hangs"] and "rank 0 stands in `dist.barrier()`" in found.faults["hangs"]


def raises_on_ranks(net, batches):
    if dist.get_world_size() > 1:
        raise KeyError("no such rank")
    ddp()(net, batches)


def test_what_raises_on_ranks_only_is_a_fault_of_the_script(ranks):
    found = diagnose(raises_on_ranks, make_net, *examples(make_net), ranks, num_steps=1)
    assert list(found.faults) == ["raises"] and "KeyError: 'no such rank'" in found.faults["raises"]


def test_a_module_that_only_ranks_cannot_load_is_a_fault_of_the_script(ranks, tmp_path, monkeypatch):
    (tmp_path / "not_on_ranks.py").write_text(textwrap.dedent("""
        import multiprocessing
        if multiprocessing.parent_process():
            raise ImportError("no such file on this rank")
        from test_diagnosis import ddp
        def train(net, batches):
            ddp()(net, batches)
    """))
    monkeypatch.syspath_prepend(tmp_path)
    found = diagnose(importlib.import_module("not_on_ranks").train, make_net, *examples(make_net), ranks, num_steps=1)
    assert list(found.faults) == ["raises"] and "ImportError: no such file on this rank" in found.faults["raises"]


@pytest.mark.parametrize("late", [1, 2])
def test_the_start_of_the_ranks_and_the_loading_of_modules_are_not_the_scripts_time(late):
    class Slow:
        world_size = 2

        def run(self, fn, *args, timeout_s):
            calls.append((fn, args, timeout_s))
            if len(calls) == late:
                raise TimeoutError("not yet there")

    calls, train = [], ddp()
    with pytest.raises(TimeoutError, match="not yet there") if late == 1 else nullcontext():
        found = diagnose(train, make_net, *examples(make_net), Slow(), num_steps=1, timeout_s=5)
        assert list(found.faults) == ["hangs"], "the loading is the script's, but has its own time"
    assert calls == [(running.nothing, args, comparing.START_S) for args in ((), (train, make_net))][:late]
    assert comparing.START_S >= 60


@pytest.mark.slow
@pytest.mark.parametrize("wrap, code, words", [("DDP(net)", 0, "no fault found"), ("net", 1, "FAULT, different start")])
def test_from_the_shell_the_exit_code_is_the_verdict(wrap, code, words, tmp_path, capsys, monkeypatch):
    (tmp_path / "net_of_ours.py").write_text("from torch import nn\n\ndef make_net():\n    return nn.Linear(6, 4)\n")
    (tmp_path / "script.py").write_text(textwrap.dedent(f"""
        import torch
        from torch.distributed import destroy_process_group, init_process_group
        from torch.nn.parallel import DistributedDataParallel as DDP
        from net_of_ours import make_net

        X, y = torch.randn(24, 6), torch.randint(4, (24,))

        def train(net, batches):
            init_process_group("nccl")
            net = {wrap}
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for X, y in batches:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(X), y).backward()
                optimizer.step()
            destroy_process_group()

        if __name__ == "__main__":
            raise SystemExit("it was started")
        """))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["d2lpar", "diagnose", str(tmp_path / "script.py")])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().out
    assert ended.value.code == code and words in said
    monkeypatch.setattr(sys, "argv", ["d2lpar", "diagnose", str(tmp_path / "script.py"), "--json",
                                      "--allow", "different start", "--allow", "not synchronised"])
    with pytest.raises(SystemExit) as ended:
        main()
    as_json = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0 and as_json["ok"] and not any(one["fault"] for one in as_json["findings"]) and as_json["compared"]
    assert code == 0 or "different start" in [one["name"] for one in as_json["findings"]]
    sys.modules.pop("net_of_ours", None)


def test_stdout_has_the_json_alone_whatever_else_is_printed(tmp_path, monkeypatch, capfd):
    (tmp_path / "script.py").write_text(textwrap.dedent("""
        import os, torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        make_net, X, y = lambda: torch.nn.Linear(4, 3), torch.rand(24, 4), torch.arange(24) % 3

        def train(net, batches):
            os.write(1, b"as C++ does\\n")
            net = DDP(net)
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for X, y in batches:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(X), y).backward()
                optimizer.step()
        """))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["d2lpar", "diagnose", str(tmp_path / "script.py"), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    said, elsewhere = capfd.readouterr()
    assert json.loads(said)["ok"] and ended.value.code == 0
    assert "as C++ does" in elsewhere


def could_not_run(capsys):
    """What is said on stderr where the exit code is 2."""
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_file_that_starts_its_training_is_told_where_that_belongs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for text, error in (("raise SystemExit(0)", "exited while it was being imported"), ("open_the_data()", "NameError")):
        (tmp_path / "script.py").write_text(text)
        monkeypatch.setattr(sys, "argv", ["d2lpar", "diagnose", str(tmp_path / "script.py")])
        said = could_not_run(capsys)
        assert error in said and "put the code that starts training under if __name__" in said and "d2lpar/" not in said


def test_a_file_that_lacks_something_is_told_what(tmp_path, monkeypatch, capsys):
    (tmp_path / "script.py").write_text("def train(net, batches):\n    pass\n\nX = 3\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, words in (("script.py", "does not define make_net, y"), ("no.py", "there is no file")):
        monkeypatch.setattr(sys, "argv", ["d2lpar", "diagnose", str(tmp_path / name)])
        assert words in could_not_run(capsys)


@pytest.mark.parametrize("text, words", [
    ("def train(net, batches)\n    pass\n", r'script\.py", line 1\n.*\n.*\nSyntaxError: [^\n]*$'),
    ("""
from torch import nn, randn, randint
make_net, X, y = lambda: nn.Linear(6, 4), randn(48, 6), randint(4, (48,))

def train(net, batches):
    batches.sampler.set_epoch(0)
""", r'^A single device cannot run this training:\n  File "[^"]*script\.py", line 6, in train\n.*leave out what only a loader or a GPU has'),
    ("""
from torch import nn, randn, randint
make_net, X, y = lambda: nn.Linear(6, 4), randn(48, 6), randint(4, (48,))

def train(net, batches):
    net(batches[0][0].view(7, 3))
""", r'^A single device cannot run this training:\n.*RuntimeError: [^\n]*$'),
    ("""
from torch import nn, randn, randint
make_net, X, y = nn.Linear(6, 4), randn(48, 6), randint(4, (48,))

def train(net, batches):
    pass
""", "^ValueError: make_net must be a function that returns a new network each time, and this is a network$")])
def test_what_a_file_does_wrong_is_said_with_its_own_lines_alone(text, words, tmp_path, monkeypatch, capsys):
    (tmp_path / "script.py").write_text(text)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["d2lpar", "diagnose", str(tmp_path / "script.py")])
    said = could_not_run(capsys)
    assert re.search(words, said.strip(), re.S), said
    assert "d2lpar/" not in said and "__main__" not in said


@pytest.mark.parametrize("cut", [fully_shard, shard_parameters])
def test_parameters_that_are_cut_over_ranks_are_refused(ranks, cut):
    def sharded(net, batches):
        cut(net)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for X, y in batches:
            F.cross_entropy(net(X), y).backward()
            optimizer.step()

    with pytest.raises(ValueError, match="shards its parameters over the ranks, as fully_shard does"):
        diagnose(sharded, make_net, *examples(make_net), ranks)


def test_a_script_that_is_changed_as_the_manual_shows_is_right(ranks, root):
    page = json.loads((root / "notebooks" / "appendix" / "watch_and_diagnose.ipynb").read_text("utf8"))
    [changes] = [found[1] for cell in page["cells"]
                 if (found := re.search(r"```diff\n(.*?)```", "".join(cell["source"]), re.S)) and "def main" in found[1]]
    before, after = ("\n".join(line[1:] for line in changes.splitlines() if line[:1] in sign) for sign in ("- ", "+ "))
    compile(before, "before", "exec")
    names = {"torch": torch, "dist": dist, "DDP": nn.parallel.DistributedDataParallel, "F": F}
    exec(after, names)
    assert diagnose(names["train"], make_net, names["X"], names["y"], ranks).ok


def test_watching_sees_the_own_gradient_and_leaves_no_hook():
    def train(net, batches):
        for X, y in batches:
            F.cross_entropy(net(X), y).backward()
            for p in net.parameters():
                p.grad *= 3  # as if somebody had changed it
            optimizer.step()
            optimizer.zero_grad()
        return [torch.tensor(1.0), 2]

    X, y = examples(make_net, 4)
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    seen = record_training(train, net, [(X, y), (X, y)])
    assert len(seen.steps) == 2 and seen.losses == [1.0, 2.0]
    for step in seen.steps:
        for name, own in step.own.items():
            torch.testing.assert_close(step.gradients[name], 3 * own)
            torch.testing.assert_close(step.after[name], step.before[name] - 0.5 * step.gradients[name])
    with pytest.raises(ZeroDivisionError):
        record_training(lambda net, batches: 1 // 0, net, [])
    optimizer.step()
    net(X)
    assert len(seen.steps) == 2 and not net._forward_pre_hooks


def test_the_own_gradient_is_noted_without_the_factor_of_a_grad_scaler():
    def train(net, batches):
        optimizer, scaler = torch.optim.SGD(net.parameters(), 0.5), torch.amp.GradScaler("cpu", init_scale=1024.0)
        for X, y in batches:
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(X), y)).backward()
            scaler.step(optimizer)  # divides the factor out
            scaler.update()

    for step in record_training(train, make_net(), [examples(make_net, 4)] * 2).steps:
        torch.testing.assert_close(step.own, step.gradients)


def test_nothing_that_was_replaced_for_a_run_is_left_behind(ranks):
    def broken(net, batches):
        assert torch.get_default_dtype() == torch.float64 and torch.zeros(2).float().dtype == torch.float64
        raise KeyError("in the middle")

    def replaced():
        return [torch.Tensor.float, nn.Module.float, F.dropout, F.scaled_dot_product_attention, F.batch_norm, torch.manual_seed,
                torch.amp.GradScaler.scale, torch.load, torch.cuda.set_device, torch.cuda.device_count, dist.all_reduce,
                nn.SyncBatchNorm.convert_sync_batchnorm, nn.parallel.DistributedDataParallel.__init__,
                nn.utils.clip_grad._clip_grads_with_norm_, running.inspect.unwrap(dist.init_process_group).__code__, dict(os.environ)]

    watched = replaced()
    with pytest.raises(KeyError, match="in the middle"):
        diagnose(broken, make_net, *examples(make_net), ranks)
    assert torch.get_default_dtype() == torch.float32 and watched == replaced()


def test_what_goes_wrong_in_the_first_step_is_raised(ranks):
    with pytest.raises(ValueError, match="makes no step"):
        diagnose(lambda net, batches: None, make_net, *examples(make_net), ranks)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        diagnose(ddp(), lambda: nn.Linear(7, 4), *examples(make_net), ranks)
    assert not dist.is_initialized()


@pytest.mark.parametrize("changes, words", [
    ({"make_net": lambda: SHARED}, "return a new network at each call"), ({"y": torch.zeros(5)}, "one row per example"), ({"ranks": 1}, "at least 2"), ({"ranks": True}, "at least 2"),
    ({"num_steps": 0}, "at least 1"), ({"allow": ["drfit"]}, "no finding 'drfit' to allow; the names are: hangs, "), ({"X": torch.zeros(11, 6), "y": torch.zeros(11).long()}, "3 minibatches of at least 4 examples"),
])
def test_arguments_that_make_no_sense_are_refused_before_anything_runs(changes, words, monkeypatch):
    monkeypatch.setattr(comparing, "run_alone", lambda *args: pytest.fail("it has begun"))
    X, y = examples(make_net)
    with pytest.raises(ValueError, match=words):
        diagnose(**{"train": ddp(), "make_net": make_net, "X": X, "y": y} | changes)


def test_a_process_that_is_in_a_group_is_refused():
    with running.group_of_one(), pytest.raises(ValueError, match="leave it first"):
        diagnose(ddp(), make_net, *examples(make_net))


def records():
    """A single device, and two ranks that did the same, as they are seen; a test makes them wrong."""
    X, y = (x[:48].reshape(3, 16, *x.shape[1:]) for x in examples(make_net))
    batches = [(A.double(), c) for A, c in zip(X, y)]
    _, alone = running.run_alone(ddp(loss=mean_of_all), make_net, batches, comparing._cut_alike(16, 2))
    return alone.record, [copy.deepcopy(alone.record), copy.deepcopy(alone.record)]


LABELS = [[torch.zeros(8)] * 2]  # of two shards


def lose(record, t, name):
    record.steps[t].gradients.pop(name)


def poison(record, t, name):
    record.steps[t].gradients[name].fill_(float("nan"))


def move(record, t, name):
    record.steps[t].gradients[name] += 1e-6


def shift(record, t, name):
    record.steps[t].after[name] += 1e-6
    for then in [step.before for step in record.steps[t + 1:]] + [record.end]:
        then[name] += 1e-6


def drag(record, t, name):
    record.steps[t].before[name] += 1e-6


@pytest.mark.parametrize("wrong", [lose, poison, move, shift, drag])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("t", [0, 2])
def test_one_wrong_number_on_one_rank_is_a_fault(wrong, rank, t):
    alone, ranks = records()
    found = Diagnosis("as it was")
    compare(alone, ranks, LABELS, found)
    assert found.ok and not found.notes
    wrong(ranks[rank], t, "2.bias")
    compare(alone, ranks, LABELS, found)
    assert not found.ok


@pytest.mark.parametrize("rank", [0, 1])
def test_nan_in_a_buffer_and_a_parameter_that_is_missing_are_another_start(rank):
    alone, ranks = records()
    for record in [alone, *ranks]:
        record.buffers["mean"] = torch.zeros(3)
    ranks[rank].buffers["mean"][0] = float("nan")
    del ranks[rank].steps[0].before["2.bias"], ranks[rank].start["2.bias"]
    found = Diagnosis("another start")
    compare(alone, ranks, LABELS, found)
    assert list(found.faults) == ["different start", "different buffers"]


def test_a_step_too_few_is_a_fault():
    alone, ranks = records()
    ranks[1].steps.pop()
    found = Diagnosis("too few")
    compare(alone, ranks, LABELS, found)
    assert "[3, 2]" in found.faults["different numbers of steps"]


def test_unequal_shards_are_unequal_and_none_is_empty():
    for k in range(2, 9):
        for n in range(2 * k, 6 * k):
            shards = comparing._cut_unequally(n, k)
            sizes = list(map(len, shards))
            assert sorted(i for shard in shards for i in shard) == list(range(n)) and len(sizes) == k and min(sizes) >= 1 and sizes[0] > sizes[-1]


def records_of_one_gradient(*own_and_taken):
    """As `records`, of one step and one parameter: each process's own gradient, and what its optimizer took."""
    alone, ranks = records()
    for record, (own, taken) in zip([alone, *ranks], own_and_taken, strict=True):
        del record.steps[1:]
        record.steps[0].gradients.clear()
        record.steps[0].examples.clear()
        record.steps[0].gradients["0.bias"] = taken.clone()
        record.steps[0].passes[:] = [{"0.bias": own.clone()}]
    return alone, ranks


def clipped(g, bound=0.05):
    """As a script clips that does not call clip_grad_norm_."""
    return g * min(1.0, bound / (g.norm().item() + 1e-6))


SHARDS = torch.tensor([[1.0, -2.0, 2.0, 0.3, 0.0], [0.4, 1.0, 3.0, -1.0, 0.7]]).double()


@pytest.mark.parametrize("exchanged, faults", [(SHARDS.mean(0), []), (SHARDS.sum(0), ["summed"])])
def test_a_script_that_clips_by_itself_does_not_hide_whether_gradients_were_summed(exchanged, faults):
    """The loss has class weights, so a single device's gradient is not the mean of the shards'."""
    one, taken = (3 * SHARDS[0] + SHARDS[1]) / 4, clipped(exchanged)
    found = Diagnosis("clipped")
    compare(*records_of_one_gradient((one, clipped(one)), (SHARDS[0], taken), (SHARDS[1], taken)), LABELS, found)
    assert list(found.faults) == faults and ("weighted mean" in found.notes) == (not faults), str(found)


def test_an_average_that_is_divided_again_is_named_even_if_only_the_single_device_clips():
    mean = SHARDS.mean(0)
    taken = mean / 2  # which is shorter than the bound
    found = Diagnosis("divided again")
    compare(*records_of_one_gradient((mean, clipped(mean, 0.7 * mean.norm().item())), (SHARDS[0], taken), (SHARDS[1], taken)), LABELS, found)
    assert list(found.faults) == ["averaged twice"], str(found)


def test_a_factor_is_told_from_another_gradient_in_three_numbers():
    """By hand: a single device has (1, 2, 2); 2 ranks that both have twice that have summed."""
    g = torch.tensor([1.0, 2.0, 2.0, 0.0, 0.0]).double()
    alone, ranks = records_of_one_gradient((g, g), (g, 2 * g), (g, 2 * g))
    found = Diagnosis("three numbers")
    compare(alone, ranks, LABELS, found)
    assert "2 times the single-device gradient" in found.faults["summed after DDP"]
    ranks[0].steps[0].gradients["0.bias"] *= torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0])
    ranks[1].steps[0].gradients["0.bias"] *= torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0])
    found = Diagnosis("three numbers")
    compare(alone, ranks, LABELS, found)
    assert list(found.faults) == ["unexplained gradient"]


@pytest.mark.slow
def test_ranks_of_its_own_are_on_the_cpu_also_where_there_are_gpus(monkeypatch):
    method = launch._start_method()  # fresh Pythons, as on a machine with GPUs, take much longer
    monkeypatch.setattr(launch, "_start_method", lambda: method)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # by NCCL, train_with_sum would fail: its sum is on the CPU
    assert list(diagnose(ddp_examples.train_with_sum, make_net, *examples(make_net)).faults) == ["divided twice"]


@pytest.mark.gpu
def test_on_a_machine_with_gpus_too_a_right_training_passes_and_wrong_ones_are_named():
    with RankGroup(2) as ranks:  # which have a GPU each if there are two
        for name in ("DDP, mean loss", "averaged by hand", "summed", "never averaged"):
            found = of(name, ranks)
            assert list(found.faults) == (WRONG[name][2] if name in WRONG else []), str(found)


# What was reported


def masked(value):
    return nn.Transformer.generate_square_subsequent_mask(4).masked_fill(torch.zeros(4, 4) == 1, value)


@pytest.mark.parametrize("mask", [masked(0.0), torch.tensor([float("nan"), 1.0, -float("inf")])], ids=["a causal mask", "padding with NaN"])
def test_infinity_and_nan_in_a_buffer_are_no_difference_where_they_are_the_same(mask):
    alone, ranks = records()
    for record in (alone, *ranks):
        record.buffers["mask"] = mask.double().clone()
    found = Diagnosis("the same mask")
    compare(alone, ranks, LABELS, found)
    assert found.ok
    for change in (lambda x: x.view(-1)[-1:].fill_(float("inf")), lambda x: x.view(-1)[:1].fill_(3.0)):
        alone, ranks = records()
        for record in (alone, *ranks):
            record.buffers["mask"] = mask.double().clone()
        change(ranks[1].buffers["mask"])
        found = Diagnosis("another mask")
        compare(alone, ranks, LABELS, found)
        assert list(found.faults) == ["different buffers"]


def test_nan_in_a_parameter_is_never_the_same():
    alone, ranks = records()
    for record in (alone, *ranks):
        record.steps[0].before["2.bias"][0] = float("nan")
    found = Diagnosis("NaN everywhere")
    compare(alone, ranks, LABELS, found)
    assert not found.ok


@pytest.mark.parametrize("strayed", [0, 1, 2])
def test_one_rank_of_three_that_steps_somewhere_else_is_found(strayed):
    alone, ranks = records()
    ranks.append(copy.deepcopy(alone))
    shift(ranks[strayed], 1, "2.bias")
    found = Diagnosis("three ranks")
    compare(alone, ranks, [[torch.zeros(8)] * 3] * 3, found)
    assert list(found.faults) == ["drift"], str(found)


def test_what_was_zeroed_does_not_count_and_what_was_clipped_is_known_as_it_was():
    def train(net, batches):
        for X, y in batches:
            F.cross_entropy(net(X), y).backward()  # for a log
            optimizer.zero_grad()
            F.cross_entropy(net(X), y).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()

    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    seen = record_training(train, net, [examples(make_net, 4)] * 2)
    for step in seen.steps:
        assert len(step.passes) == 1 and step.thrown_away == 1 and not step.stale
        for name, own in step.own.items():
            torch.testing.assert_close(step.unclipped[name], own)
        assert sum(x.square().sum() for x in step.gradients.values()).sqrt() == pytest.approx(0.01, rel=1e-3)
        assert re.fullmatch(r"test_diagnosis\.py, line \d+: `nn\.utils\.clip_grad_norm_\(net\.parameters\(\), 0\.01\)`", step.lines["clip"])
        assert step.lines["backward"].endswith(": `F.cross_entropy(net(X), y).backward()`") and "optimizer.step()" in step.lines["step"]


def test_gradients_that_were_left_from_the_step_before_are_seen():
    def train(net, batches):
        for X, y in batches:
            F.cross_entropy(net(X), y).backward()
            optimizer.step()

    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    assert [step.stale for step in record_training(train, net, [examples(make_net, 4)] * 2).steps] == [False, True]


class Signs(torch.optim.Optimizer):
    """An optimizer of the script's own, which PyTorch hooks when it is made; its step takes the loss, not a closure."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def step(self, loss=None):
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p -= group["lr"] * p.grad.sign()


def test_a_class_of_the_scripts_own_goes_to_ranks_as_it_was(ranks):
    step = Signs.step
    found = diagnose(ddp(loss=mean_of_all, optimizer=lambda net: Signs(net.parameters())), make_net, *examples(make_net), ranks)
    assert found.ok and Signs.step is step, str(found)


def test_a_step_may_take_something_other_than_a_closure():
    def train(net, batches):
        optimizer = Signs(net.parameters())
        for X, y in batches:
            loss = F.cross_entropy(net(X), y)
            loss.backward()
            optimizer.step(loss.item())

    assert len(record_training(train, make_net(), [examples(make_net, 4)] * 2).steps) == 2


class ExchangesInside(torch.optim.Optimizer):
    """Exchanges the gradients in step() itself, and leaves the ranks' own in p.grad."""

    def __init__(self, params, divides, only_norms):
        super().__init__(params, {})
        self.divides, self.only_norms = divides, only_norms

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            grad = p.grad.clone()
            dist.all_reduce(grad.norm() if self.only_norms else grad)
            p -= 0.1 * grad / (dist.get_world_size() if self.divides else 1)
            dist.broadcast(p, 0)


def trains_with(divides, only_norms):
    def train(net, batches):
        for p in net.parameters():
            dist.broadcast(p.data, 0)
        optimizer = ExchangesInside(net.parameters(), divides, only_norms)
        for X, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(net(X), y).backward()
            optimizer.step()

    return train


@pytest.mark.parametrize("divides, only_norms", [(True, False), (False, False), (True, True)])
def test_an_exchange_inside_the_optimizers_step_is_judged_by_the_parameters_after_it(ranks, divides, only_norms):
    found = diagnose(trains_with(divides, only_norms), make_net, *examples(make_net), ranks=ranks)
    assert found.ok == (divides and not only_norms), str(found)


def scheduled(rate, calls=lambda: 1):
    """A training whose rate is a function of the number of the scheduler's steps and of the world size."""
    def train(net, batches):
        net = DDP(net)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        k = dist.get_world_size()
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: rate(t, k))
        for X, y in batches:
            optimizer.zero_grad()
            mean_of_all(net(X), y).backward()
            optimizer.step()
            for _ in range(calls()):
                scheduler.step()

    return train


def scales_its_second_optimizer(net, batches):
    net = DDP(net)
    layers = [list(layer.parameters()) for layer in net.module if list(layer.parameters())]
    rest = [p for layer in layers[1:] for p in layer]
    optimizers = [torch.optim.SGD(layers[0], 0.2), torch.optim.SGD(rest, 0.1 * dist.get_world_size())]
    for X, y in batches:
        net.zero_grad()
        mean_of_all(net(X), y).backward()
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("train, step, factor", [
    (scales_its_second_optimizer, None, ""),
    (scheduled(lambda t, k: 0.5 ** t, lambda: dist.get_world_size()), 2, "0.025 instead of 0.05"),
    (scheduled(lambda t, k: 1 if t < 3 else 0.1, lambda: dist.get_world_size()), None, ""),  # a single device gets there later
    (scheduled(lambda t, k: 1 if t < 2 else 0.1, lambda: dist.get_world_size()), 2, "0.01 instead of 0.1"),
    (scheduled(lambda t, k: 0.5 ** t), None, None),
    (scheduled(lambda t, k: k * 0.5 ** t), None, ""),
    (scheduled(lambda t, k: 1 + (k - 1) * t / 4), None, ""),  # a warm-up to k times the rate
    (scheduled(lambda t, k: (1 + (k - 1) * t / 4) * 0.9 ** t), None, ""),
])
def test_a_rate_that_departs_from_a_single_devices_in_a_later_step_is_no_linear_scaling(train, step, factor, group_of):
    found = diagnose(train, make_net, *examples(make_net), ranks=group_of(2))
    assert list(found.faults) == ["scheduler"] * (step is not None), str(found)
    if step:
        assert f"from step {step} on" in found.faults["scheduler"] and factor in found.faults["scheduler"], str(found)
    else:
        assert ("scaled learning rate" in found.notes) == (factor is not None), str(found)


def asks_for_gpus(net, batches):
    rank, device = dist.get_rank(), f"cuda:{dist.get_rank()}"
    torch.cuda.set_device(rank)
    assert torch.cuda.device_count() == dist.get_world_size() and torch.cuda.current_device() == rank
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net.cuda()).to(rank)
    net = DDP(net.to(torch.device(device)), device_ids=[rank], output_device=rank)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for X, y in batches:
        X, y = X.to(device, non_blocking=True), y.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        (F.cross_entropy(net(X), y) + torch.zeros((), device="cuda")).backward()
        optimizer.step()
    torch.cuda.synchronize()


def test_a_script_for_cuda_is_run_on_the_cpu_and_its_batchnorm_is_synchronised(ranks):
    found = diagnose(asks_for_gpus, ddp_examples.batchnorm_net, *examples(make_net), ranks)
    assert found.ok and list(found.notes) == ["CUDA", "mean of means"], str(found)
    assert ".cuda()" in found.notes["CUDA"] and "SyncBatchNorm (a CPU version)" in found.notes["CUDA"]


def test_what_is_allowed_is_a_note_and_nothing_else_is(ranks):
    train, make_net, names = WRONG["parameters averaged after Adam"]
    found = diagnose(train, make_net, *examples(make_net), ranks, allow=names)
    assert found.ok and names[0] in found.notes
    assert not diagnose(train, make_net, *examples(make_net), ranks, allow="hangs").ok


def test_the_rates_that_the_page_shows_are_those_of_the_sets():
    stored = json.loads(gate.STORED.read_text("utf8"))
    for name, folder, more in (("diagnose, tuned", gate.TUNED, gate.catalogue()),
                               ("diagnose, held out, second round", gate.HELD_OUT, {})):
        kinds = [case["is"] for case in (gate.cases(folder) | more).values()]
        assert (stored[name]["right"], stored[name]["wrong"]) == (kinds.count("right"), kinds.count("wrong")), (
            "Store the rates again: python book/tools/gate.py --store tuned (book/authors.md, Add a rule to `diagnose` and `watch`)")
        assert {path.stem for path in folder.glob("*.py")} == set(gate.cases(folder))
        assert kinds.count("right") >= 40 and kinds.count("wrong") >= 40
    assert stored["diagnose, tuned"]["let through"] == stored["diagnose, tuned"]["right"] >= 100
    assert stored["diagnose, tuned"]["right cause"] >= 0.95 * stored["diagnose, tuned"]["wrong"] >= 95


def test_the_interval_of_a_rate_is_wilsons():
    assert gate.interval(9, 10) == pytest.approx((0.596, 0.982), abs=1e-3)
    assert gate.interval(0, 40)[0] == 0 and gate.interval(0, 40)[1] == pytest.approx(0.0876, abs=1e-3)
