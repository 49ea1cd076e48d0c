"""Train the GPT of the chapter on texts for longer than a page can: `python book/lab/small_gpt.py`.

A GPT of four blocks on two ranks, in bfloat16, with samples before and after; the two ways to average a loss over texts
of different lengths, one text per row and packed, each with three seeds; how far their gradients are apart, before
training and after 100 updates; the digits that the losses of one rank and two share after 200 updates; and a verdict of
`watch`. Writes what is missing of `d2lpar/pages/stored/small_gpt.json`, in about twenty minutes on two cores; delete
the file to do all runs again, or one of its entries.
"""

from __future__ import annotations

import datetime
import json
import math
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from d2lpar import RankGroup, watch
from d2lpar.pages.means import mean_of_means
from d2lpar.pages.results import stored_script
from d2lpar.scratch import distance
from d2lpar.texts import GPT, inputs_and_targets, pack, paragraphs, sample, token_backward, train_texts
from d2lpar.timing import describe_machine

STORED = Path(__file__).resolve().parents[2] / "d2lpar" / "pages" / "stored" / "small_gpt.json"
COMMAND = "python book/lab/small_gpt.py"
TIMEOUT_S = 3 * 3600.0
HELD_OUT = 200  # texts that nobody trains on
LONG = {"width": 128, "depth": 4, "length": 256}
LONG_UPDATES, LONG_SEED = 800, 0
STARTS = (b"", b"Returns a tensor", b"Args:")
SHORT, SHORT_UPDATES, SEEDS = {"length": 128}, 200, range(3)
LAYOUTS = {"packed": 128, "one text per row": 64}  # rows of the page
APART_UPDATES, APART_BATCHES = 100, 12


def shuffled_texts(longest: int, seed: int) -> tuple[list[bytes], list[bytes]]:
    """The texts to train on, in an order that depends on the seed, and those held out, which do not."""
    texts = paragraphs(longest)
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(2026)).tolist()
    held, train = order[:HELD_OUT], order[HELD_OUT:]
    turn = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed)).tolist()
    return [texts[train[i]] for i in turn], [texts[i] for i in held]


@torch.no_grad()
def mean_loss(net: nn.Module, rows: Tensor) -> float:
    """Over all tokens of all rows, in float32."""
    total, count = 0.0, 0
    for part in rows.split(16):
        x, y = inputs_and_targets(part)
        total += F.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="sum").item()
        count += int((y != -100).sum())
    return total / count


def samples(net: nn.Module) -> list[str]:
    return [sample(net, start, most=200) for start in STARTS]


def long_run(ranks: RankGroup) -> dict[str, Any]:
    """The curve of the long run, and samples before it and at its end."""
    texts, held = shuffled_texts(LONG["length"] - 1, LONG_SEED)
    rows, held_rows = pack(texts, LONG["length"]), pack(held, LONG["length"])
    torch.manual_seed(LONG_SEED)
    start = GPT(**LONG)
    found: dict[str, Any] = {"model": LONG, "updates": LONG_UPDATES, "seed": LONG_SEED, "rows": len(rows),
                             "texts": len(texts), "samples": {"0": samples(start)},
                             "held_out": {"0": mean_loss(start, held_rows)}}
    train = partial(train_texts, bf16=True, lr=2e-3)
    losses, _, net = ranks.run(train, start, rows, LONG_UPDATES, timeout_s=TIMEOUT_S)[0]
    found["losses"] = [float(f"{loss:.4g}") for loss in losses.tolist()]
    found["samples"][f"{LONG_UPDATES}"] = samples(net)
    found["held_out"][f"{LONG_UPDATES}"] = mean_loss(net, held_rows)
    return found


def two_means(ranks: RankGroup) -> dict[str, Any]:
    """Held-out losses per token, after training with either mean: one text per row, or packed."""
    found: dict[str, Any] = {"model": SHORT, "updates": SHORT_UPDATES, "seeds": list(SEEDS)}
    for layout in ("one text per row", "packed"):
        for name, backward in (("all tokens", token_backward), ("mean of means", mean_of_means)):
            for seed in SEEDS:
                texts, held = shuffled_texts(SHORT["length"] - 1, seed)
                texts = texts[:12 * SHORT_UPDATES] if layout != "packed" else texts
                length = SHORT["length"]
                parts = [texts] if layout == "packed" else [[text] for text in texts]
                rows = torch.cat([pack(part, length) for part in parts])
                torch.manual_seed(seed)
                train = partial(train_texts, backward=backward)
                *_, net = ranks.run(train, GPT(**SHORT), rows, SHORT_UPDATES, timeout_s=TIMEOUT_S)[0]
                found.setdefault(layout, {}).setdefault(name, []).append(mean_loss(net, pack(held, length)))
                print(layout, name, seed, found[layout][name][-1], file=sys.stderr, flush=True)
    return found


def page_rows(layout: str) -> Tensor:
    """The rows of the page: the same texts in the same order."""
    texts, length = paragraphs(63), LAYOUTS[layout]
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = [texts[i] for i in order]
    parts = [shuffled] if layout == "packed" else [[text] for text in shuffled]
    return torch.cat([pack(part, length) for part in parts])


def page_net() -> GPT:
    torch.manual_seed(0)
    return GPT(length=128)


def gradient(rank: int, backward: Any, net: nn.Module, rows: Tensor) -> Tensor:
    """Of a batch of twelve rows, in micro-batches of two."""
    mine = rows.tensor_split(dist.get_world_size())[rank]
    backward(DDP(net), [inputs_and_targets(part) for part in mine.split(2)])
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def means_apart(ranks: RankGroup) -> dict[str, Any]:
    """How far the mean of means is from the right gradient, in twelve batches before training, and in the twelve that
    follow 100 updates."""
    found: dict[str, Any] = {"updates": APART_UPDATES, "seed": 0}
    for layout in LAYOUTS:
        rows = page_rows(layout)
        *_, trained = ranks.run(train_texts, page_net(), rows, APART_UPDATES, timeout_s=TIMEOUT_S)[0]
        for when, net, first in (("0", page_net(), 0), (f"{APART_UPDATES}", trained, APART_UPDATES)):
            net = net.double()
            for batch in rows[12 * first:12 * (first + APART_BATCHES)].split(12):
                net.zero_grad()
                wrong, right = (ranks.run(gradient, way, net, batch, timeout_s=TIMEOUT_S)[0]
                                for way in (mean_of_means, token_backward))
                found.setdefault(layout, {}).setdefault(when, []).append(float(f"{distance([wrong], [right]):.4g}"))
    return found


def curves_apart(ranks: RankGroup) -> dict[str, Any]:
    """The digits that the losses of one rank and of two share after more updates than the page has."""
    found: dict[str, Any] = {"updates": SHORT_UPDATES, "seed": 0}
    rows = page_rows("packed")
    with RankGroup(1, "gloo") as alone:
        alone.run(one_thread)
        for name, bf16 in (("float32", False), ("bf16 autocast", True)):
            train = partial(train_texts, bf16=bf16)
            one, two = (group.run(train, page_net(), rows, SHORT_UPDATES, timeout_s=TIMEOUT_S)[0][0]
                        for group in (alone, ranks))
            found[name] = [round(-math.log10(max(1e-16, ((two - one) / one)[:n].abs().max().item())), 2)
                           for n in (12, SHORT_UPDATES)]
    return found


def verdict_of_watch(ranks: RankGroup) -> str:
    """What `watch` says of the page's script if its gradients are set to zero once per epoch."""
    zero, loop, text = "        optimizer.zero_grad()\n", "    for batch in loader:\n", stored_script("gpt")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gpt.py")
        path.write_text(text.replace(zero, "").replace(loop, "    optimizer.zero_grad()\n" + loop), "utf8")
        return f"{watch([path])}"


def main() -> None:
    about = {"command": COMMAND, "date": f"{datetime.date.today()}", "ranks": 2, "threads": 1,
             "machine": "{processor}".format(**describe_machine()), "details": describe_machine()}
    stored = json.loads(STORED.read_text("utf8")) if STORED.exists() else {"about": about}
    with RankGroup(2, "gloo") as ranks:
        ranks.run(one_thread)
        parts = {"two_means": two_means, "long": long_run, "means_apart": means_apart, "curves_apart": curves_apart,
                 "zero once per epoch": verdict_of_watch}
        for name, part in parts.items():
            if name not in stored:
                stored[name] = part(ranks)
                STORED.write_text(json.dumps(stored) + "\n", "utf8")


def one_thread(rank: int) -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
