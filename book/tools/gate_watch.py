"""How often is `watch` right? `python book/tools/gate_watch.py SET` runs every script of a set on 2 and on 3 ranks.

- `bugs`: one script and what can go wrong in it, `tests/watch/bugs.py`;
- `diagnose`: the training loops written for `diagnose`, each as a complete script; `tests/watch/cases.toml` says
  which of these only a comparison with a single device can tell, and which have another name here;
- a folder of scripts with `cases.toml`, such as `tests/watch/tuned`, whose scripts were held out in the first round;
- `tuned`: all of these, as they were used to write the rules.

The ranks are copies of this process, which has loaded PyTorch. The rates are in `d2lpar/pages/stored/gate.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path
from typing import Any

import forked
import gate
from d2lpar.diagnosis.scripts import NotRun, watch

WATCH = gate.ROOT / "tests" / "watch"
BEYOND = "beyond"


def of_bugs() -> dict[str, dict[str, Any]]:
    """The variants of one script, with what is run."""
    expected = runpy.run_path(str(WATCH / "bugs.py"))["EXPECTED"]
    return {name: {"is": "wrong" if names else "right", "names": names, "words": [str(WATCH / "bugs.py"), name]}
            for name, names in expected.items()}


def of_diagnose() -> dict[str, dict[str, Any]]:
    """The training loops written for `diagnose`, as scripts."""
    here = tomllib.loads((WATCH / "cases.toml").read_text("utf8"))
    beyond = {name: reason for reason, names in here[BEYOND].items() for name in names}
    found = {}
    for name, case in (gate.cases(gate.TUNED) | gate.catalogue()).items():
        what = name.removeprefix(gate.CATALOGUE) if name.startswith(gate.CATALOGUE) else str(gate.TUNED / f"{name}.py")
        found[name] = case | {"words": [str(WATCH / "as_script.py"), what], BEYOND: beyond.get(name, "")}
        found[name]["names"] = [*case.get("names", []), *here["also"].get(name, [])]
    return {name: case for name, case in found.items() if name not in here["left_out"] and case["is"] != "meant"}


def of_folder(folder: Path) -> dict[str, dict[str, Any]]:
    """The scripts of a folder."""
    return {name: case | {"words": [str(folder / f"{name}.py"), *case.get("arguments", "").split()]}
            for name, case in gate.cases(folder).items()}


def verdict_on(words: list[str], k: int) -> gate.Verdict:
    """What `watch` says of a script."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found: Any = watch(words, k)
        except NotRun as problem:
            return gate.Verdict(["error"], [], str(problem))
    return gate.Verdict(list(found.faults), list(found.notes), str(found), not found.unjudged)


def run(every: dict[str, dict[str, Any]], ks: list[int], tell: bool = True) -> dict[str, dict[int, gate.Verdict]]:
    """The verdicts on the scripts of a set, by number of ranks."""
    verdicts: dict[str, dict[int, gate.Verdict]] = {}
    for name, case in every.items():
        for k in [k for k in ks if k in case.get("ranks", ks)]:
            forked.install(not case.get("fresh"))
            verdict = verdict_on(case["words"], k)
            verdicts.setdefault(name, {})[k] = verdict
            if tell and not gate.is_as_expected(case, verdict) and not case.get(BEYOND):
                said = ", ".join(verdict.faults or verdict.notes) or "nothing"
                said = said if verdict.faults or verdict.is_judged else verdict.text.partition("\n")[0]
                print(f"{name} on {k} ranks, {case['is']}: {said}", flush=True)
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description="Run watch on the scripts of a set, on 2 and on 3 ranks.")
    parser.add_argument("set", help="bugs, diagnose, tuned, or a folder with cases.toml")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3], help="how many (2 3)")
    parser.add_argument("--only", nargs="*", default=[], help="only scripts whose names have one of these in them")
    parser.add_argument("--json", action="store_true", help="print the verdicts")
    parser.add_argument("--store", metavar="NAME", help="write the rates into gate.json under this name")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    folder = Path(args.set).resolve()
    sets = {"bugs": of_bugs, "diagnose": of_diagnose, "tuned": lambda: of_bugs() | of_diagnose() | of_folder(
        WATCH / "tuned")}
    every = sets.get(args.set, lambda: of_folder(folder))()
    every = {name: case for name, case in every.items() if not args.only or any(one in name for one in args.only)}
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):  # the scripts write files
        verdicts = run(every, args.ranks, not args.json)
    if args.json:
        print(json.dumps({name: {k: verdict._asdict() for k, verdict in by.items()} for name, by in verdicts.items()}))
        return
    rates = gate.rates_of({name: case for name, case in every.items() if not case.get(BEYOND)}, verdicts)
    print(*gate.rows(rates), sep="\n")
    if args.store:
        gate.store(f"watch, {args.store}", rates)
    if rates["let through"] + rates["right, not judged"] < rates["right"]:
        sys.exit("a correct script was reported as wrong")


if __name__ == "__main__":
    main()
