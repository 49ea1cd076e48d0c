"""Is `watch` right about scripts that train through a trainer? The scripts are in `tests/watch/trainers.py`.

`python book/tools/try_trainers.py` installs the package alone and the trainers below into a temporary environment, runs
`watch` on every script, and says for each trainer how many of the right scripts it let through, and how many of the
wrong ones it found, and named by their cause. It stops with an error if a right script was reported as wrong, or if
fewer than 95% of the wrong ones were named.

`--here` uses the running environment, which must have the trainers, instead of a new one. `--store` writes the verdicts
to `d2lpar/pages/stored/trainers.json`, with how far `watch` judged the right script of each trainer, and plain scripts
with DDP and with `fully_shard`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from try_install import ROOT, copy_package, environment

TRAINERS = {"accelerate": "1.15.0", "transformers": "5.24.0", "lightning": "2.6.6", "pytorch-ignite": "0.5.5",
            "torchdata": "0.11.0", "webdataset": "1.0.2"}
SCRIPTS = ROOT / "tests" / "watch" / "trainers.py"
PLAIN = {"DDP": "right", "fully_shard": "sharded"}  # variants of tests/watch/bugs.py, which need no trainer
STORED = ROOT / "d2lpar" / "pages" / "stored" / "trainers.json"
LIMIT_S = 400  # for one script
VERSIONS = """\
import json, platform, sys
from importlib.metadata import version
print(json.dumps({"python": platform.python_version()} | {name: version(name) for name in sys.argv[1:]}))
"""


class Verdict(NamedTuple):
    """What `watch` said of a script; a script that could not be run has the fault "error"."""

    exit: int
    faults: list[str]
    notes: list[str]
    coverage: dict[str, dict[str, str]]
    seconds: float


def scripts() -> dict[str, Any]:
    """The scripts by name; each has a `trainer`, a `text`, and the faults that are `expected`."""
    return runpy.run_path(str(SCRIPTS))["scripts"]()


def verdict_on(words: list[str], folder: Path, python: str, setting: dict[str, str]) -> Verdict:
    """What `watch` says of a script that runs in `folder`, in a process of its own and on two new ranks."""
    began = time.monotonic()
    process = subprocess.Popen([python, "-m", "d2lpar", "watch", "--json", *words], cwd=folder, env=setting, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends its ranks
        printed, _ = process.communicate()
    found: dict[str, Any] = {"exit": 2, "findings": [], "coverage": {}, "error": "watch printed no verdict"}
    with suppress(ValueError):
        found = json.loads(printed)
    if found["error"]:
        print(found["error"], flush=True)
    by_kind: dict[bool, list[str]] = {True: ["error"] if found["error"] else [], False: []}
    for finding in found["findings"]:
        by_kind[finding["fault"]].append(finding["name"])
    return Verdict(found["exit"], by_kind[True], by_kind[False], found["coverage"], time.monotonic() - began)


def is_named(expected: list[str], verdict: Verdict) -> bool:
    """Whether the first fault is one of those expected of a wrong script."""
    return bool(set(verdict.faults[:1]) & set(expected))


def is_as_expected(expected: list[str], verdict: Verdict) -> bool:
    """Whether a right script was let through, or a wrong one named by its cause."""
    return is_named(expected, verdict) if expected else verdict.exit == 0


def counts_of(every: dict[str, Any], verdicts: dict[str, Verdict]) -> dict[str, int]:
    """How many scripts were let through, found, named, and not judged."""
    right = [verdicts[name] for name, script in every.items() if not script.expected]
    wrong = {name: script.expected for name, script in every.items() if script.expected}
    return {"right": len(right), "let through": sum(one.exit == 0 for one in right),
            "accused": sum(bool(one.faults) for one in right),
            "wrong": len(wrong), "found": sum(verdicts[name].exit == 1 for name in wrong),
            "named": sum(is_named(expected, verdicts[name]) for name, expected in wrong.items()),
            "not judged": sum(verdicts[name].exit == 3 for name in every)}


def line_of(trainer: str, counts: dict[str, int], seconds: float) -> str:
    """What is printed of one trainer."""
    parts = [f"{words} {counts[what]:2} of {counts[n]:2}{more}" for words, what, n, more in (
        ("right", "let through", "right", " let through"), ("wrong", "found", "wrong", " found"),
        ("named", "named", "wrong", ""))]
    return f"{trainer:20} {', '.join(parts)}, not judged {counts['not judged']}, {seconds:.0f} s"


def of_trainer(every: dict[str, Any], trainer: str) -> dict[str, Any]:
    """The scripts that use this trainer; its base script has its name."""
    return {name: script for name, script in every.items() if script.trainer == trainer}


def run(every: dict[str, Any], folder: Path, python: str, setting: dict[str, str]) -> dict[str, Verdict]:
    """The verdicts on all scripts; each runs as `train.py` in a folder of its own."""
    verdicts = {}
    for name, script in every.items():
        own = folder / re.sub(r"\W+", "_", name)
        own.mkdir(parents=True)
        (own / "train.py").write_text(script.text, "utf8")
        verdict = verdicts[name] = verdict_on(["train.py"], own, python, setting)
        if not is_as_expected(script.expected, verdict):
            said = ", ".join(verdict.faults) or ("no fault" if verdict.exit == 0 else "not judged")
            print(f"{name}, {'wrong' if script.expected else 'right'}: {said}", flush=True)
    return verdicts


def in_new_environment(folder: Path) -> tuple[str, dict[str, str]]:
    """Install the package and the trainers; returns the Python that has them, and the variables to run it with."""
    (folder / "source").mkdir()
    source, run_python = copy_package(folder / "source"), environment(folder)
    run_python("-m", "pip", "install", "-q", f"d2lpar @ {source.as_uri()}",
               *(f"{name}=={version}" for name, version in TRAINERS.items()))
    setting = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return run_python("-c", "import sys; print(sys.executable)").strip(), setting


def stored(versions: dict[str, str], every: dict[str, Any], verdicts: dict[str, Verdict],
           plain: dict[str, Verdict]) -> dict[str, Any]:
    """What is stored: nothing that differs between two runs of the same versions."""
    trainers: dict[str, Any] = {}
    for trainer in dict.fromkeys(script.trainer for script in every.values()):
        trainers[trainer] = counts_of(of_trainer(every, trainer), verdicts)
    for name, verdict in {**{trainer: verdicts[trainer] for trainer in trainers}, **plain}.items():
        states = {subject: how["state"] for subject, how in verdict.coverage.items()}
        trainers.setdefault(name, {})["coverage"] = states
    return {"versions": versions, "trainers": trainers,
            "scripts": {name: {"exit": one.exit, "faults": one.faults, "notes": one.notes}
                        for name, one in verdicts.items()}}


def main(folder: Path, here: bool, store: bool) -> None:
    if here:
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        python, setting = sys.executable, os.environ | {"PYTHONPATH": paths}
    else:
        python, setting = in_new_environment(folder)
    # nothing is downloaded, and no trainer's own settings on this machine are used
    setting |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "TOKENIZERS_PARALLELISM": "false",
                "OMP_NUM_THREADS": "1"}
    asked = subprocess.run([python, "-c", VERSIONS, "torch", *TRAINERS], env=setting, text=True, capture_output=True)
    if asked.returncode:
        sys.exit(f"{asked.stderr}\nInstall {', '.join(map('=='.join, TRAINERS.items()))} or leave out --here")
    versions = json.loads(asked.stdout)
    print(", ".join(map(" ".join, versions.items())), flush=True)

    every = scripts()
    verdicts = {}
    for trainer in dict.fromkeys(script.trainer for script in every.values()):
        own = of_trainer(every, trainer)
        verdicts |= (said := run(own, folder / "scripts", python, setting))
        print(line_of(trainer, counts_of(own, said), sum(one.seconds for one in said.values())), flush=True)
    counts = counts_of(every, verdicts)
    print(line_of("all", counts, sum(one.seconds for one in verdicts.values())))
    if store:
        bugs = str(ROOT / "tests" / "watch" / "bugs.py")
        plain = {name: verdict_on([bugs, variant], folder, python, setting) for name, variant in PLAIN.items()}
        results = stored(versions, every, verdicts, plain)
        STORED.write_text(json.dumps(results, indent=1) + "\n", "utf8")
    if counts["accused"] or counts["named"] < 0.95 * counts["wrong"]:
        sys.exit("no right script may be reported as wrong, and at least 95% of the wrong ones must be named")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run watch on scripts that train through a trainer.")
    parser.add_argument("--here", action="store_true", help="use the running environment, which has the trainers")
    parser.add_argument("--store", action="store_true", help="write the verdicts to d2lpar/pages/stored/trainers.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder), args.here, args.store)
