"""How far was a watched run judged? A verdict that finds no fault counts only where something was looked for.

`cover` writes down how far the records allow the steps to be judged, and what else the script does; `judging` does so
for the data. A subject is judged, judged in part, not judged, or it was not seen in the steps that were watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lpar.diagnosis.compare import Diagnosis

FEWEST_STEPS = 2  # of each network: replicas that have drifted apart show in the second
ON_THE_STEPS = ("start", "exchange", "update")


def cover(ran: Any, rows: Sequence[Sequence[dict]], found: Diagnosis) -> None:
    """Write down how far each subject was judged; `rows` are the steps that all ranks took side by side."""
    ends = [rank[-1] for rank in ran.of("end") if rank]
    state, why = _of_steps(ran, rows, ends)
    for name in ON_THE_STEPS:
        found.cover(name, state, why, needed=True)
    if state != "not judged" and "exchanged inside step()" in found.notes:
        found.cover("exchange", "in part", "only by comparing the parameters after step(), because step() exchanges "
                    "the gradients itself")
    lines = {what for rank in ran.steps for data in rank for what in data["step"].lines}
    clipping = (state, why if state == "not judged" else "")
    for name, is_used, how, missing in (
            ("clipping", "clip" in lines, clipping, "no PyTorch function for it was called"),
            ("checkpoints", any(ran.of("save")), ("in part", "only which ranks write which file"),
             "torch.save was not called in the steps that were watched"),
            ("evaluation", any(ran.of("evaluation")), ("in part", "only its mode and the buffers, not the metric"),
             "no forward pass without gradients was seen")):
        found.cover(name, *(how if is_used else ("not seen", missing)))
    found.cover("random numbers", "in part", "only whether the ranks draw the same ones from the default generators "
                "of PyTorch, NumPy and Python")
    if resumed := next((data["resumed"] for data in ends if data.get("resumed")), ""):
        why = f"the script resumes a run, which is not compared with an uninterrupted one [{resumed}]"
        found.cover("resuming", "not judged", why, needed=True)
    else:
        found.cover("resuming", "not seen", "no optimizer's state was loaded")


def _of_steps(ran: Any, rows: Sequence[Sequence[dict]], ends: Sequence[dict]) -> tuple[str, str]:
    """How far the start, the exchange and the update of all trained networks were judged, and why no further."""
    if len(ran.records) < 2:
        return "not judged", "there is only one rank"
    if any(data["is_sharded"] for rank in ran.steps for data in rank):
        return "not judged", "the parameters are sharded as by tensor parallelism or FullyShardedDataParallel"
    if not rows:
        return "not judged", "the ranks' steps cannot be matched"
    if others := next((data["settings"] for data in ends if data.get("settings")), ""):
        return "not judged", others
    is_whole = len(ends) == len(ran.records) and not any(data["enough"] for data in ends)
    networks = ends[0].get("networks", {}) if ends else {}
    fewest, partly = 0, ""
    for name, names in (networks or {"": list(rows[0][0]["step"].before)}).items():
        trained = _trained_in(rows, frozenset(names))
        if trained is None:
            continue
        judged, all_of = trained
        if judged < FEWEST_STEPS and not (is_whole and judged == all_of > 0):
            what = "the network" + f" {name}" * (len(networks) > 1)
            return "not judged", (
                f"only one step of {what} was seen" if judged else
                f"no optimizer step that uses the gradients of {what} was seen")
        fewest = min(fewest or judged, judged)
        if judged < all_of:
            partly = f"only {judged} of {all_of} steps of the network" + f" {name}" * (len(networks) > 1)
    if not fewest:
        return "not judged", "no gradient was seen before the exchange"
    return ("in part", partly) if partly else ("judged", "the only step" * (fewest == 1))


def _trained_in(rows: Sequence[Sequence[dict]], names: frozenset[str]) -> tuple[int, int] | None:
    """In how many steps a network's own gradients were seen, and how many moved it; None if it is not trained."""
    judged = moved = 0
    with_gradients: set[str] = set()
    for row in rows:
        own = {name for data in row for grads in data["step"].passes for name in grads} & names
        held = frozenset().union(*(data["step"].held for data in row)) & names  # a rank may step a part of them
        with_gradients |= own
        moved += any(name in held and (name in own or bool(x.any()))
                     for data in row for name, x in data["step"].gradients.items())
        judged += bool(held & own)
    first, last = rows[0][0]["step"].before, rows[-1][0]["step"].after
    changes = any(not first[name].equal(last[name]) for name in with_gradients & first.keys() & last.keys())
    return (judged, moved) if moved or changes else None  # what changes may be updated without an optimizer
