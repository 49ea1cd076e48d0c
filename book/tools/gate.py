"""How often is `diagnose` right? Every script of a set on 2 and on 3 ranks: `python book/tools/gate.py` (`make gate`).

A set is a folder of scripts and `cases.toml`, which says of each what it is:

- `right`: no fault may be found;
- `wrong`: the first fault must have one of the `names`, or hold the words of one of the entries of `says`, or, if there
  is no fault, a note; `ranks` says on how many ranks the mistake shows, if that is not 2 and 3;
- `meant`: it differs from a single device on purpose; with the fault allowed, nothing may be left.

The catalogue of the manual, `d2lpar.pages.ddp_examples`, belongs to the tuned set, which was used to write the rules. A
held-out set was written by the project without sight of the rules, and was run once on the frozen rules. There were two
rounds: the first set has joined the tuned one, and the second is in `tests/diagnose/held_out`. The rates are in
`d2lpar/pages/stored/gate.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import runpy
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from d2lpar.diagnosis import diagnose
from d2lpar.launch import RankGroup
from d2lpar.pages.ddp_examples import RIGHT, WRONG, examples

ROOT = Path(__file__).resolve().parents[2]
TUNED, HELD_OUT = ROOT / "tests" / "diagnose" / "tuned", ROOT / "tests" / "diagnose" / "held_out"
CATALOGUE = "catalogue: "  # prefix of the names of the manual's training functions
STORED = ROOT / "d2lpar" / "pages" / "stored" / "gate.json"


class Verdict(NamedTuple):
    """What `diagnose` said of a script, or the error of a script that a single device cannot run."""

    faults: list[str]
    notes: list[str]
    text: str
    is_judged: bool = True  # `watch` may find no fault because it could not look for one


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    """The scripts of a set by name: `is`, and `names` if it is not right."""
    return tomllib.loads((folder / "cases.toml").read_text("utf8"))


def catalogue() -> dict[str, dict[str, Any]]:
    """The page's training functions, as cases."""
    right = {f"{CATALOGUE}{name}": {"is": "right"} for name in RIGHT}
    return right | {f"{CATALOGUE}{name}": {"is": "wrong", "names": names[:1]} for name, (_, _, names) in WRONG.items()}


def verdict_on(folder: Path, name: str, ranks: RankGroup, allow: list[str] | None = None) -> Verdict:
    """Run `diagnose` on a script; an error counts as a fault of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if name.startswith(CATALOGUE):
                chosen: Any = (RIGHT | WRONG)[name.removeprefix(CATALOGUE)]
                train, make_net, X, y = *chosen[:2], *examples(chosen[1], 54)
            else:
                names = runpy.run_path(str(folder / f"{name}.py"))
                train, make_net, X, y = (names[each] for each in ("train", "make_net", "X", "y"))
            found = diagnose(train, make_net, X, y, ranks, allow=allow or [])
        except Exception as error:
            return Verdict(["error"], [], f"{type(error).__name__}: {error}")
    return Verdict(list(found.faults), list(found.notes), str(found))


def is_as_expected(case: dict[str, Any], verdict: Verdict) -> bool:
    """Whether a right script was let through, or a wrong one named by its cause."""
    if not verdict.faults and not verdict.is_judged:
        return False
    if case["is"] == "right":
        return not verdict.faults
    said = verdict.faults[:1] or verdict.notes
    return _says(case["says"], said, verdict.text) if "says" in case else bool(set(said) & set(case["names"]))


def _says(words: list[str], names: list[str], text: str) -> bool:
    """Whether what was said under one of these names, or a name itself, holds the words of a case."""
    findings = re.split(r"\n(?=FAULT, |note, |judged: |in part: |not judged: |not seen: |not checked: )", text)
    heard = [" ".join(one.lower().split()) for one in findings
             if one.startswith(tuple(f"{kind}, {name}: " for kind in ("FAULT", "note") for name in names))]
    return any(all(word.lower() in one for word in each.split(" + ")) for each in words for one in heard)


def interval(hits: int, n: int) -> tuple[float, float]:
    """The 95% interval of a rate, by Wilson's formula (1927)."""
    z, rate = 1.96, hits / n
    middle, half = rate + z * z / (2 * n), z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def run_set(folder: Path, ks: tuple[int, ...] = (2, 3)) -> dict[str, Any]:
    """The rates of a set; a script counts as missed if it is missed on any number of ranks."""
    every, verdicts = cases(folder) | (catalogue() if folder == TUNED else {}), {}
    for k in ks:
        ranks = RankGroup(k, "gloo")
        for name, case in every.items():
            if k not in case.get("ranks", ks):
                continue
            verdict = verdict_on(folder, name, ranks)
            if case["is"] == "meant" and verdict.faults:
                allowed = verdict_on(folder, name, ranks, verdict.faults)
                verdict = verdict if not allowed.faults else allowed
            verdicts.setdefault(name, {})[k] = verdict
            if not is_as_expected(case, verdict):
                print(f"{name} on {k} ranks, {case['is']}: {', '.join(verdict.faults or verdict.notes) or 'nothing'}",
                      flush=True)
            if verdict.faults and verdict.faults[0] in ("hangs", "different collectives", "raises", "error"):
                ranks.close()
        ranks.close()
    return rates_of(every, verdicts)


def rates_of(every: dict[str, dict[str, Any]], verdicts: dict[str, dict[int, Verdict]]) -> dict[str, Any]:
    """How many scripts of a set were let through, found, and named by their cause, on each number of ranks."""
    right = [name for name, case in every.items() if case["is"] == "right"]
    wrong = [name for name, case in every.items() if case["is"] == "wrong"]

    def good(names: list[str]) -> list[str]:
        return [name for name in names if all(is_as_expected(every[name], one) for one in verdicts[name].values())]

    def unjudged(names: list[str]) -> list[str]:
        return [name for name in names if not any(one.faults for one in verdicts[name].values())
                and not all(one.is_judged for one in verdicts[name].values())]

    found = [name for name in wrong if all(
        one.faults not in ([], ["error"]) or is_as_expected(every[name], one) for one in verdicts[name].values())]
    return {"right": len(right), "let through": len(good(right)), "right, not judged": len(unjudged(right)),
            "wrong": len(wrong), "found": len(found), "right cause": len(good(wrong)),
            "wrong, not judged": len(unjudged(wrong)),
            "missed": sorted(set(right + wrong) - set(good(right + wrong)) - set(unjudged(right + wrong)))}


def rows(rates: dict[str, Any]) -> list[str]:
    """The lines of one set: each rate with its interval."""
    lines = []
    for what, n, words in (("let through", "right", "right scripts let through"),
                           ("right, not judged", "right", "right, but not judged"),
                           ("found", "wrong", "wrong scripts found"), ("right cause", "wrong", "named by their cause"),
                           ("wrong, not judged", "wrong", "wrong, but not judged")):
        if not rates[n] or ("not judged" in what and not rates.get(what)):  # there are none of this kind
            continue
        low, high = interval(rates[what], rates[n])
        percent = 100 if rates[what] == rates[n] else min(99, round(100 * rates[what] / rates[n]))
        lines.append(f"{words:26} {rates[what]:3} of {rates[n]:3}, {percent:3}%  "
                     f"({100 * low:.0f}% to {100 * high:.0f}%)")
    return lines


def store(name: str, rates: dict[str, Any]) -> None:
    """Write the rates of a set where the manual reads them: rerun it afterwards."""
    known = json.loads(STORED.read_text("utf8")) if STORED.exists() else {}
    STORED.write_text(json.dumps(known | {name: rates | {"lines": rows(rates)}}, indent=1) + "\n", "utf8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run diagnose on the scripts of a set, on 2 and on 3 ranks.")
    parser.add_argument("set", nargs="?", default=TUNED, type=Path, help="a folder with cases.toml (the tuned set)")
    parser.add_argument("--store", metavar="NAME", help="write the rates into gate.json under this name")
    args = parser.parse_args()
    rates = run_set(args.set)
    print(*rows(rates), sep="\n")
    if args.store:
        store(f"diagnose, {args.store}", rates)
    if args.set == TUNED and (rates["let through"] < rates["right"] or rates["right cause"] < 0.95 * rates["wrong"]):
        sys.exit("the tuned set must have no false alarm, and at least 95% of its causes must be right")


if __name__ == "__main__":
    main()
