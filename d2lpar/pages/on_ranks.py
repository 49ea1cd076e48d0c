"""Functions that readers write, tried on ranks: what each rank gets, and who waits for whom if they hang."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from d2lpar.launch import RankError, RankGroup
from d2lpar.pages import differences
from d2lpar.pages.differences import Difference, home, same
from d2lpar.ranks import Traffic

SAME_ORDER = "All ranks have to call the same collectives, in the same order."


@cache
def group(world_size: int) -> RankGroup:
    """Ranks on which functions are tried; they stay until Python ends."""
    return RankGroup(world_size, "gloo")


def compare_on_ranks(fn: Callable, words: str, scene: Callable, *args: Any, world_size: int = 2) -> None:
    """Raise Difference unless `scene(rank, fn, *args)` returns on every rank what it returns with the package's own.

    A scene builds what the function needs, calls it, and returns what can be compared, on the CPU. A function of a
    notebook travels to the ranks with all that it uses. After an error or a hang, the next call starts new ranks.
    """
    ranks = group(world_size)
    found: list = []
    expected = ranks.run(scene, home(fn.__name__), *args, timeout_s=60)
    try:
        counts = ranks.run(collectives, scene, fn, *args, timeout_s=differences.LIMIT_S)
        if len(set(counts)) == 1:  # and once more as in a notebook, because a recorder can hide an error of autograd
            found = ranks.run(scene, fn, *args, timeout_s=differences.LIMIT_S)
    except TimeoutError as error:
        raise Difference(f"{words}, {where_ranks_stand(fn, str(error))}") from None
    except RankError as error:
        raise Difference(f"{words}, {what_a_rank_raised(fn, str(error))}") from None
    except ValueError as error:
        raise Difference(f"your function cannot be sent to the ranks, because something that it uses belongs to this "
                         f"process alone: {error.__cause__}. (Is it a group of ranks?)") from None
    if len(set(counts)) > 1:
        ranks.close()  # or the collective that one rank has started meets one of the next case
        raise Difference(f"{words}, the ranks take part in different numbers of collectives: "
                         f"{', '.join(f'rank {rank} in {count}' for rank, count in enumerate(counts))}. {SAME_ORDER}")
    for rank, (ours, theirs) in enumerate(zip(found, expected)):
        for (name, a), b in zip(ours.items(), theirs.values()):
            if name == "the result" and a is None:
                raise Difference(f"{words}, your function returns nothing. Is there a `return`?")
            same(name, a, b, f"{words}, on rank {rank}")


def collectives(rank: int, scene: Callable, fn: Callable, *args: Any) -> int:
    """How many collectives this rank takes part in."""
    with Traffic() as sent:
        scene(rank, fn, *args)
    return sent.counts.total()


def where_ranks_stand(fn: Callable, message: str) -> str:
    """After a time-out: the line of `fn` in which each rank is, from the stacks in the launcher's message."""
    stands: dict[str, list[str]] = {}
    own = re.escape(inspect.unwrap(fn).__code__.co_filename)
    for rank, stack in re.findall(r"^(rank \d+): (.*?)(?=\n\nrank \d+: |\Z)", message, re.DOTALL | re.MULTILINE):
        inside = re.search(rf'File "{own}", line \d+ in \S+\n    (.*)', stack)
        place = f"is in the line `{inside[1]}`" if inside else \
            "has returned" if stack == "fn had returned" else "is outside your function"
        stands.setdefault(place, []).append(rank)
    many = {"is": "are", "has": "have"}
    text = f"after {differences.LIMIT_S:.0f} seconds, " + ", and ".join(
        f"{ranks[0]} {place}" if len(ranks) == 1 else
        f"{' and '.join(ranks)} {many[verb]} {place.removeprefix(verb).strip()}"
        for place, ranks in stands.items() for verb in [place.split()[0]])
    if "torch/distributed" not in message.replace("\\", "/"):
        return f"your function has not returned on all ranks: {text}."
    return f"a rank waits for another that never comes: {text}. {SAME_ORDER}"


def what_a_rank_raised(fn: Callable, message: str) -> str:
    """The error of a rank and the line of `fn` that it comes from, from the launcher's message."""
    head, _, rest = message.partition("\n\n")
    rank = " ".join(head.split()[:2])
    if sizes := re.search(r"op\.nbytes\. (\d+) vs (\d+)", rest):
        return (f"two ranks' collectives do not match: {sizes[1]} bytes arrive where {sizes[2]} are expected, and "
                f"PyTorch ends the process. {SAME_ORDER}")
    if "Traceback" not in rest:
        return f"{head.replace('before fn', 'before your function')}: {rest}".rstrip(": ") + "."
    last = rest.rpartition("Traceback (most recent call last):\n")[2]
    error = next((line for line in last.splitlines() if line and not line.startswith(" ")), "(it says nothing)")
    own = re.escape(inspect.unwrap(fn).__code__.co_filename)
    lines = re.findall(rf'File "{own}", line \d+, in \S+\n    (.*)', last)
    name, _, said = error.partition(": ")
    said = re.sub(r"\[rank\d+\]:\[.*?\] |, layout=.*?memory_format=\(nullopt\)", "", said)  # noise of PyTorch's C++
    place = f" in the line `{lines[-1]}`" if lines else ""
    return f"your function raises {name.rpartition('.')[2]} on {rank}{place}: {said or '(it says nothing)'}"
