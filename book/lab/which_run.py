"""Run the scripts of "Which run is broken?" and watch the wrong ones: `python book/lab/which_run.py`.

Each pair is `which_run_script.py` with the changes that both of its scripts have, and once more with a mistake planted.
Both train on two ranks, with the same five seeds. Writes `d2lpar/pages/stored/which_run.json`, in about ten minutes.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from d2lpar.timing import describe_machine

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("which_run_script.py")
STORED = ROOT / "d2lpar" / "pages" / "stored" / "which_run.json"
WITH_PACKAGE = {**os.environ, "PYTHONPATH": f"{ROOT}"}
SEEDS = range(5)
EVERY = 4  # steps whose losses are averaged, as in a script that prints every fourth step

Change = tuple[str, str]  # what is replaced, and by what


class Pair(NamedTuple):
    """A mistake, in words and as a change to the right script, after the changes that both scripts have."""

    mistake: str
    wrong: list[Change]
    both: list[Change]
    broken: str  # "A" or "B"


def with_sgd(changed: str) -> list[Change]:
    return [("torch.optim.SGD(net.parameters(), lr=0.05)", changed)]


HEAVY = "torch.optim.SGD(net.parameters(), lr={}, momentum=0.9)"
ADAM = "torch.optim.Adam(net.parameters(), lr={})"
DIVIDE = "        p.grad /= dist.get_world_size()\n"
AVERAGE = "            average(net)\n"
ZERO = "            optimizer.zero_grad()\n"
LOOP = "        for X, y in loader:\n"
BACKWARD = "            loss = F.cross_entropy(net(X), y)\n            loss.backward()\n"
IN_TWO = """\
            for A, b in zip(X.chunk(2), y.chunk(2)):
                loss = F.cross_entropy(net(A), b)
                (loss / 2).backward()
"""
TOO_EARLY = """\
            for i, (A, b) in enumerate(zip(X.chunk(2), y.chunk(2))):
                loss = F.cross_entropy(net(A), b)
                (loss / 2).backward()
                if i == 0:
                    average(net)
"""
OPTIMIZER = "    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)\n"
SCHEDULE = """\
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.99 ** t)
"""
STEP = "            optimizer.step()\n"
PAIRS = [
    Pair("The gradients are summed, but never divided by the world size. Adam divides each gradient by its own size, "
         "so it hardly notices a factor.",
         [(DIVIDE, "")], with_sgd(ADAM.format(0.001)), "B"),
    Pair("Every rank starts from parameters of its own: nothing is broadcast.",
         [("        dist.broadcast(p.detach(), src=0)\n", "        pass\n")], with_sgd(HEAVY.format(0.005)), "A"),
    Pair("The sampler's epoch is never set, so every epoch has the same order.",
         [("        sampler.set_epoch(epoch)\n", "")], with_sgd(HEAVY.format(0.01)), "A"),
    Pair("Each rank's loss is divided by the world size, and then the gradients are averaged.",
         [("loss.backward()", "(loss / dist.get_world_size()).backward()")], [], "B"),
    Pair("Every rank gets all examples, in the same order.",
         [("seed=seed)", "seed=seed, num_replicas=1, rank=0)")], with_sgd(ADAM.format(0.0005)), "A"),
    Pair("Only rank 0 steps its learning-rate schedule.",
         [("            scheduler.step()\n", "            if rank == 0:\n                scheduler.step()\n")],
         [(OPTIMIZER, SCHEDULE), (STEP, STEP + "            scheduler.step()\n")], "B"),
    Pair("The gradients are never averaged: each rank trains by itself.",
         [(AVERAGE, "")], with_sgd(HEAVY.format(0.02)), "B"),
    Pair("The gradients are zeroed once per epoch, and not in every step. So a step also uses all earlier gradients of "
         "the epoch, and is much longer than it should be.",
         [(ZERO, ""), (LOOP, "        optimizer.zero_grad()\n" + LOOP)],
         with_sgd("torch.optim.SGD(net.parameters(), lr=0.01)"), "A"),
    Pair("With two backward passes per step, the gradients are averaged before the last pass.",
         [(IN_TWO + AVERAGE, TOO_EARLY)], [(BACKWARD, IN_TWO), *with_sgd(ADAM.format(0.002))], "A"),
]


def changed(text: str, changes: list[Change]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the script"
        text = text.replace(old, new)
    return text


def scripts(pair: Pair) -> tuple[str, str]:
    """The right script of a pair and the wrong one."""
    right = changed(SCRIPT.read_text("utf8"), pair.both)
    return right, changed(right, pair.wrong)


def seeds_of(number: int) -> list[int]:
    """Every pair has seeds of its own, so that no right curve is seen twice."""
    return [10 * number + seed for seed in SEEDS]


def curves(script: str, seeds: list[int], folder: Path) -> list[list[float]]:
    """The losses that rank 0 would print, one curve for each seed."""
    path, out = folder / "train.py", folder / "losses.json"
    path.write_text(script, "utf8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*launch, path, out, *map(str, seeds)], check=True, stdout=subprocess.DEVNULL, env=WITH_PACKAGE)
    runs = json.loads(out.read_text("utf8"))
    return [[rounded_mean(run[i:i + EVERY]) for i in range(0, len(run), EVERY)] for run in runs]


def rounded_mean(losses: list[float]) -> float:
    return float(f"{sum(losses) / len(losses):.3g}")


def verdict_of(script: str, folder: Path) -> dict:
    """What `python -m d2lpar watch` says: its exit code, the names of the faults, and what was seen of the first."""
    path = folder / "train.py"
    path.write_text(script, "utf8")
    watch = [sys.executable, "-m", "d2lpar", "watch", "--json", path, folder / "unused.json", "0"]
    ran = subprocess.run(watch, stdout=subprocess.PIPE, env=WITH_PACKAGE, cwd=folder)  # where it puts files back
    faults = [found for found in json.loads(ran.stdout)["findings"] if found["fault"]]
    return {"exit_code": ran.returncode, "faults": [found["name"] for found in faults],
            "seen": faults[0]["seen"] if faults else ""}


def record(number: int, pair: Pair) -> dict:
    """Both scripts of a pair: run with all seeds, and watched."""
    with tempfile.TemporaryDirectory() as folder:
        made = [{"curves": curves(script, seeds_of(number), Path(folder)), "verdict": verdict_of(script, Path(folder))}
                for script in scripts(pair)]
    return {"mistake": pair.mistake, "broken": pair.broken, "seeds": seeds_of(number),
            "right": made[0], "wrong": made[1]}


def main() -> None:
    pairs = []
    for number, pair in enumerate(PAIRS):
        pairs.append(record(number, pair))
        print(f"{number + 1} of {len(PAIRS)}: {pair.mistake} {pairs[-1]['wrong']['verdict']['faults']}", flush=True)
    machine = describe_machine()
    steps = EVERY * len(pairs[0]["right"]["curves"][0])
    about = {"command": "python book/lab/which_run.py", "date": f"{datetime.date.today()}", "ranks": 2, "steps": steps,
             "every": EVERY, "machine": machine["processor"], "details": machine}
    head, body = json.dumps(about), ",\n".join(json.dumps(pair) for pair in pairs)
    STORED.write_text(f'{{"about": {head},\n"pairs": [\n{body}\n]}}\n', "utf8")


if __name__ == "__main__":
    main()
