"""The projects: the solutions pass their checks, each known mistake gets its sentence, and the page's table is true."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def check(root: Path) -> ModuleType:
    """book/projects/check.py, under a name of its own: there is a different check.py in book/tools/."""
    spec = importlib.util.spec_from_file_location("check_of_projects", root / "book" / "projects" / "check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def solution(root: Path) -> str:
    return (root / "book" / "projects" / "solutions" / "my_training.py").read_text("utf8")


@pytest.fixture
def says(check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """What the check says of a program."""
    def of(text: str) -> str:
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.delitem(sys.modules, "my_training", raising=False)
        file = tmp_path / "my_training.py"
        file.write_text(text, "utf8")
        try:
            check.main([str(file)])
        except SystemExit as error:
            return str(error)
        finally:
            sys.modules.pop("my_training", None)
        return capsys.readouterr().out.splitlines()[-1]

    return of


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the solution"
        text = text.replace(old, new)
    return text


SUMMED = "loss(replica(A), b).sum().backward()"
ADDED = "                allreduce([p.grad for p in copies])\n"
DIVIDED = "                    p.grad /= len(X)\n"
STEPS = "            for optimizer in optimizers:\n                optimizer.step()\n"
ZEROED = "                optimizer.zero_grad()\n"
RATE = "lr=0.02, momentum=0.9"
WRONG = {  # what is changed in the solution, and what the check must say
    "mean of means": ([(SUMMED, "loss(replica(A), b).mean().backward()"), (DIVIDED, "                    p.grad /= num_devices\n")],
                      ["for shards of 4 and 3 examples", "mean of means"]),
    "sum of means": ([(SUMMED, "loss(replica(A), b).mean().backward()"), (DIVIDED, "                    pass\n")],
                     ["about 2 times what it should be"]),
    "no allreduce": ([(ADDED, "")], ["divided by the size of the whole minibatch, but the sum over the devices is missing"]),
    "no allreduce, own means": ([(ADDED, ""), (SUMMED, "loss(replica(A), b).mean().backward()"), (DIVIDED, "                    pass\n")],
                                ["an allreduce is missing"]),
    "not divided": ([(DIVIDED, "                    pass\n")], ["on a single device, for a minibatch of 7 examples", "not divided"]),
    "divided by the shard": ([(DIVIDED, "                    p.grad /= len(A)\n")], ["size of the last shard"]),
    "each by its own shard": ([(ADDED + "                for p in copies:\n" + DIVIDED,
                                ADDED + "                for p, shard in zip(copies, X_shards):\n                    p.grad /= len(shard)\n")],
                              ["by the size of its own shard"]),
    "divided twice": ([(DIVIDED, "                    p.grad /= len(X) * num_devices\n")], ["1/2 of what it should be"]),
    "replicas are one": ([("copy.deepcopy(net).to(device)", "net.to(device)")], ["overlap in memory", "real copies"]),
    "replicas are one, added by hand": (
        [("copy.deepcopy(net).to(device)", "net.to(device)"), (ADDED, "")], ["share the memory of `0.weight`", "copy.deepcopy"]),
    "only replica 0 steps": ([(STEPS, "            optimizers[0].step()\n")], ["only replica 0 has stepped"]),
    "the total reaches only replica 0": (
        [(ADDED, "                copies[0].grad = sum(p.grad for p in copies)\n")], ["replica 0 is right"]),
    "BatchNorm": ([("nn.GroupNorm(4, 16)", "nn.BatchNorm2d(16)")], ["the layer `1` of the network is a BatchNorm2d", "does not split"]),
    "the last minibatch is dropped": (
        [("            X_shards, y_shards", "            if len(X) < 7:\n                continue\n            X_shards, y_shards")],
        ["on a single device, the last minibatch is dropped"]),
    "divided by a fixed size": ([(DIVIDED, "                    p.grad /= 7\n")], ["gradient is divided by 7"]),
    "no zero_grad": ([(ZEROED, "")], ["uses the gradient of the first step again"]),
    "no zero_grad, divided in the loss": (
        [(ZEROED, ""), (SUMMED, "(loss(replica(A), b).sum() / len(X)).backward()"), (DIVIDED, "                    pass\n")],
        ["uses the gradient of the first step again"]),
    "optimizers of the network": ([("make_optimizer(replica.parameters())", "make_optimizer(net.parameters())")], ["no parameter moves"]),
    "new optimizers in each step": (
        [("            for optimizer in optimizers:\n", "            for replica in replicas:\n                optimizer = make_optimizer(replica.parameters())\n")],
        ["new ones have no momentum"]),
    "examples left over": (
        [("split_batch(X, y, devices)", "(x[:len(x) // num_devices * num_devices].split(len(x) // num_devices) for x in (X, y))")],
        ["only 6 of 7 examples reach a device"]),
    "a rate of its own": ([("[make_optimizer(replica.parameters())", "[torch.optim.SGD(replica.parameters(), lr=0.05, momentum=0.9)")],
                          ["the step is 2.5 times what it should be", "make_optimizer"]),
    "only some examples": ([(SUMMED, "loss(replica(A), b)[1:].sum().backward()")], ["off by"]),
    "an exception": ([(ADDED, "                allreduce(p.grad for p in copies)\n")],
                     ["running `train` on 1 device raises TypeError in line 53, `allreduce(p.grad for p in copies)`"]),
    "float32": ([("replica(A), b)", "replica(A.float()), b)")], ["The check computes in float64"]),
    "an argument more": ([("minibatches, num_epochs=1)", "minibatches, num_epochs)")], ["all other arguments need default values"]),
    "a name is missing": ([("def loss(", "def my_loss(")], ["has no function `loss`", "one number for each example"]),
    "a syntax error": ([("def loss(scores, y):", "def loss(scores, y)")], ["raises SyntaxError in line 30: expected ':'."]),
    "nothing returned": ([("    return replicas\n", "")], ["it returns nothing (is there a `return`?)"]),
    "one network returned": ([("    return replicas\n", "    return replicas[0]\n")], ["list of its replicas", "type Sequential"]),
    "too few returned": ([("    return replicas\n", "    return replicas[:1]\n")], ["on 2 devices, `train` returns 1 network."]),
    "a mean as the loss": ([('reduction="none"', 'reduction="mean"')], ["a tensor of shape (7,), but it returns a tensor of shape ()"]),
    "a layer that mixes examples": (
        [("nn.Flatten(), ", "nn.Flatten(), Centred(), "),
         ("def make_net", "class Centred(nn.Module):\n    def forward(self, X):\n        return X - X.mean(0)\n\n\ndef make_net")],
        ["looks at several examples at once"]),
    "random numbers": ([("replica(A), b)", "replica(A), b)"), ("return F.cross_entropy(scores, y", "return F.cross_entropy(scores + torch.rand_like(scores), y")],
                       ["draws random numbers"]),
    "no rate": ([(RATE, "lr=0.0")], ["moves no parameter"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_mistake_in_a_training_loop_gets_its_sentence(name: str, says, solution: str) -> None:
    pairs, words = WRONG[name]
    said = says(changed(solution, *pairs))
    print(said)
    assert said.startswith("Not yet: ") and said.endswith((".", "?", ".)", "?)")) and ".." not in said
    assert [word for word in words if word not in said] == [], said


RIGHT = {
    "as it is": [],
    "Adam": [("torch.optim.SGD(params, lr=0.02, momentum=0.9)", "torch.optim.Adam(params)")],
    "plain SGD": [(RATE, "lr=0.02")],
    "dropout": [("nn.Flatten(), ", "nn.Flatten(), nn.Dropout(0.5), ")],
    "divided in the loss": [(SUMMED, "(loss(replica(A), b).sum() / len(X)).backward()"), (DIVIDED, "                    pass\n")],
    "a layer whose bias does not matter": [("nn.GroupNorm(4, 16)", "nn.GroupNorm(16, 16)")],
    "a frozen layer": [("        nn.Flatten()", "        nn.Conv2d(32, 32, 1).requires_grad_(False), nn.Flatten()"),
                       ("for copies in zip(*[replica.parameters() for replica in replicas]):", "for copies in zip(*[[p for p in replica.parameters() if p.requires_grad] for replica in replicas]):")],
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_training_loop_passes(name: str, says, solution: str) -> None:
    said = says(changed(solution, *RIGHT[name]))
    assert said.startswith("Right. In float64, 1, 2 and 3 devices"), said


def test_what_the_first_stage_ends_with_is_what_its_page_shows(says, solution: str, root: Path) -> None:
    page = " ".join((root / "book" / "projects" / "own_network.md").read_text("utf8").split())  # whose lines are shorter
    assert says("") in page and says(solution) in page
    assert says(solution[:solution.index("def train")]) in page
    assert says(solution.replace("    return replicas\n", "    return replicas[:1]\n")) in page


# the second and the third project


def mistakes(root: Path) -> list[list[tuple[str, str]]]:
    """What each of the ten mistakes changes in the solution, as its page shows it."""
    page = (root / "book" / "projects" / "ten_mistakes.md").read_text("utf8")
    found = []
    for block in re.findall(r"^```diff\n(.*?)^```", page, re.M | re.S):
        lines = block.splitlines()
        old, new = ("".join(line[1:] + "\n" for line in lines if line[0] == sign) for sign in "-+")
        found.append([(old, new)])
    return found


def table(root: Path) -> list[list[str]]:
    """The rows of the page's table, without their numbers."""
    page = (root / "book" / "projects" / "ten_mistakes.md").read_text("utf8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [row[0] for row in rows] == [str(i) for i in range(1, 11)]
    return [row[1:] for row in rows]


TEN = range(1, 11)


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Callable[[list[list]], list]:
    """Do the tasks of tests/helpers/planted.py in a folder with the frame, the solutions, and with each mistake planted."""
    projects = root / "book" / "projects"
    for file in [projects / "frame.py", *(projects / "solutions").glob("*.py")]:
        (tmp_path / file.name).write_text(file.read_text("utf8"), "utf8")
    script = (projects / "solutions" / "my_ddp.py").read_text("utf8")
    assert len(mistakes(root)) == len(TEN)
    for i, pairs in zip(TEN, mistakes(root)):
        (tmp_path / f"{i}.py").write_text(changed(script, *pairs), "utf8")

    def of(tasks: list[list]) -> list:
        path = os.pathsep.join(str(root / name) for name in (".", "book/tools", "tests"))
        done = subprocess.run([sys.executable, "-W", "ignore", root / "tests" / "helpers" / "planted.py", json.dumps(tasks)], cwd=tmp_path,
                              capture_output=True, text=True, timeout=500, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path})
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return of


def verdict(found: dict) -> str:
    """What watch says first, as in the table."""
    if found["faults"]:
        return f"FAULT, {found['faults'][0]}"
    return f"note, {found['notes'][0]}" if found["notes"] else "nothing"


def small(folder: Path) -> None:
    """Four minibatches in an epoch."""
    file = folder / "my_training.py"
    file.write_text(changed(file.read_text("utf8"), ("return images.images / 255, images.labels", "return images.images[:704] / 255, images.labels[:704]")))


CLEAN = {"faults": [], "notes": [], "exit": 0}


def test_watch_finds_nothing_wrong_in_the_solution_and_says_of_a_mistake_what_the_table_says(root: Path, run, tmp_path: Path) -> None:
    small(tmp_path)
    right, first = run([["watch", 2, f"{name}.py", "--net", "mine"] for name in ("my_ddp", 1)])  # all ten in the weekly run
    assert right == CLEAN
    assert verdict(first) == table(root)[0][1], (
        "Change the table and the words below it in book/projects/ten_mistakes.md (left: what watch says now)")


@pytest.mark.weekly
def test_with_all_images_watch_says_what_the_table_says_and_of_a_resumed_run_that_it_was_not_judged(root: Path, run) -> None:
    for k in (2, 3):
        right, *wrong = run([["watch", k, f"{name}.py", "--net", "mine"] for name in ("my_ddp", *TEN)])
        assert right == CLEAN
        assert [verdict(found) for found in wrong] == [row[k - 1] for row in table(root)]
    _, *resumed = run([["run", 2, "my_ddp.py", "--plain", "--net", "mine", "--epochs", "1", "--save", "half.pt"],
                       *(["watch", 2, name, "--net", "mine", "--resume", "half.pt"] for name in ("my_ddp.py", "9.py"))])
    assert [found["exit"] for found in resumed] == [3, 0], resumed


def agree(check: ModuleType, folder: Path, *names: str) -> bool:
    with pytest.raises(SystemExit) as ended:
        check.check_checkpoints([folder / f"{name}.pt" for name in names])
    return ended.value.code == 0


def plain(k: int, script: str, name: str, epochs: int, *options: str) -> list:
    """A task: train in float64, without what does not split, and save."""
    return ["run", k, f"{script}.py", "--plain", "--epochs", str(epochs), "--save", f"{name}.pt", *options]


MINE = "--net", "mine"


def test_the_solution_takes_the_same_steps_on_one_two_and_three_ranks_and_resumes_and_the_frame_runs(root: Path, check, run, tmp_path: Path, capsys) -> None:
    frame = run([["run", 2, "frame.py", "--epochs", "1"]])[0]
    page = (root / "book" / "projects" / "own_ddp.md").read_text("utf8")
    lines = {line for line in frame.splitlines() if line.startswith("rank ")}
    assert lines == {line for line in page.splitlines() if line.startswith("rank ")} != set()
    small(tmp_path)
    *on, _, _ = run([*(plain(k, "my_ddp", str(k), 1, *MINE) for k in (1, 2, 3)),
                     plain(2, "my_ddp", "straight", 2, *MINE), plain(2, "my_ddp", "resumed", 2, *MINE, "--resume", "2.pt")])
    assert agree(check, tmp_path, "1", "2", "3")
    assert len({re.search(r"accuracy .*", said)[0] for said in on}) == 1
    capsys.readouterr()
    assert agree(check, tmp_path, "straight", "resumed") and capsys.readouterr().out.endswith("the same values, to the last bit.\n")
    assert not agree(check, tmp_path, "2", "straight"), "the second epoch moved the parameters"


@pytest.mark.weekly
def test_one_two_and_three_ranks_agree_where_the_table_says_so(root: Path, check, run, tmp_path: Path) -> None:
    small(tmp_path)
    said = run([plain(k, str(i), f"{i}-{k}", 1, *MINE) for i in TEN for k in (1, 2, 3)])
    assert ["yes" if agree(check, tmp_path, *(f"{i}-{k}" for k in (1, 2, 3))) else "no" for i in TEN] == [row[3] for row in table(root)]
    accuracies = [re.search(r"accuracy .*", line)[0] for line in said]
    assert len({*accuracies[-6:-3]}) == 1 and len({*accuracies[-3:]}) > 1, "the tenth mistake shows in what the ranks print"


@pytest.mark.weekly
def test_with_all_images_the_runs_do_what_the_pages_say(check, run, tmp_path: Path, capsys) -> None:
    run([*(plain(k, "my_ddp", str(k), 1) for k in (1, 2, 3)),
         *(["run", k, "my_ddp.py", "--epochs", "1", "--save", f"full-{k}.pt"] for k in (1, 2)),
         plain(2, "my_ddp", "straight", 2, *MINE), plain(2, "my_ddp", "half", 1, *MINE), plain(2, "9", "resumed", 2, *MINE, "--resume", "half.pt"),
         *(plain(k, "2", f"summed-{k}", 1, *MINE) for k in (1, 2))])
    assert agree(check, tmp_path, "1", "2", "3"), "ResNet-18, with what does not split switched off"
    assert not agree(check, tmp_path, "full-1", "full-2"), "BatchNorm and mirroring do not split"
    for names, least, most in ((("straight", "resumed"), 0.1, 0.5), (("summed-1", "summed-2"), 1e-8, 1e-6)):
        capsys.readouterr()
        assert not agree(check, tmp_path, *names)
        assert least < float(re.search(r"distance is (\S+),", capsys.readouterr().out)[1]) < most


@pytest.mark.weekly
def test_watch_judges_the_solution_with_resnet_as_the_page_shows(root: Path, run, tmp_path: Path) -> None:
    script, page = (tmp_path / "my_ddp.py").read_text("utf8"), (root / "book" / "projects" / "own_ddp.md").read_text("utf8")
    (tmp_path / "without.py").write_text(changed(script, ("        dist.broadcast(x, src=0)\n", "        pass\n")))
    said = {name: subprocess.run([sys.executable, "-m", "d2lpar", "watch", name], cwd=tmp_path, capture_output=True, text=True,
                                 env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300) for name in ("my_ddp.py", "without.py")}
    assert [done.returncode for done in said.values()] == [0, 0], said
    assert "\n".join(said["my_ddp.py"].stdout.splitlines()[:2]) in page and "note, " not in said["my_ddp.py"].stdout
    noted = said["without.py"].stdout
    assert noted[noted.index("note, different"):noted.index(" [")] in page
