"""`train_ddp.py` for texts: the functions that differ from the book's script, and the script with them in place."""

from __future__ import annotations

import ast
import difflib
import inspect
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F

from d2lpar import texts
from d2lpar.texts import GPT, inputs_and_targets, pack, paragraphs


def make_net():  # yours goes here
    """A new network."""
    return GPT(width=32, length=64)


def load_data(folder):  # and your data here
    """Inputs and targets of the training set, and of the test set, all in memory."""
    rows = pack(paragraphs(63), 64)
    return [inputs_and_targets(part) for part in (rows[:240], rows[240:300])]


def minibatch(data, step, args):
    """This rank's shard of the next minibatch; which one depends on `step` alone."""
    inputs, targets = data
    epoch, place = divmod(step, len(targets) // args.batch_size)
    generator = torch.Generator().manual_seed(10**6 * args.seed + epoch)
    order = torch.randperm(len(targets), generator=generator)
    whole = order[args.batch_size * place:args.batch_size * (place + 1)]
    mine = whole.tensor_split(dist.get_world_size())[dist.get_rank()]
    return inputs[mine], targets[mine]


def backward(net, X, y, args):
    """Accumulate the mean loss's gradient; return this rank's share of the loss."""
    device, share = next(net.parameters()).device, 0.0
    tokens = (y != -100).sum().to(device)
    dist.all_reduce(tokens)  # of all ranks
    pieces = zip(X.tensor_split(args.accumulate), y.tensor_split(args.accumulate))
    for i, (X, y) in enumerate(pieces, 1):
        X, y = X.to(device), y.to(device)
        with nullcontext() if i == args.accumulate else net.no_sync():
            with torch.autocast(device.type, torch.bfloat16, enabled=args.bf16):
                scores = net(X).mT
            loss = F.cross_entropy(scores.float() if args.bf16 else scores, y,
                                   reduction="sum") / tokens
            (loss * dist.get_world_size()).backward()  # DDP averages over the ranks
        share += loss.item()
    return share


@torch.no_grad()
def evaluate(net, data, device):
    """Mean loss and accuracy; each token counts once, on one rank."""
    net.eval()
    sums = torch.zeros(3, dtype=torch.float64)  # loss, correct, total
    mine = [x.tensor_split(dist.get_world_size())[dist.get_rank()] for x in data]
    for X, y in zip(*(x.split(256) for x in mine)):
        scores, y = net(X.to(device)).mT, y.to(device)
        loss = F.cross_entropy(scores, y, reduction="sum")
        sums += torch.tensor([loss, (scores.argmax(1) == y).sum(), (y != -100).sum()])
    net.train()
    dist.all_reduce(sums)
    loss, right, total = sums.tolist()
    return loss / total, right / total


CHANGED = (make_net, load_data, minibatch, backward, evaluate)
IMPORTED = "from d2lpar.texts import GPT, inputs_and_targets, pack, paragraphs\n"


def original_script() -> str:
    """The text of the book's script."""
    return Path(texts.__file__).with_name("train_ddp.py").read_text("utf8")


def gpt_script() -> str:
    """The same with the five functions above, without `augment`, and with one more import."""
    text = original_script()
    lines, new = text.splitlines(True), {fn.__name__: inspect.getsource(fn) for fn in CHANGED}
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef) and node.name in {*new, "augment"}:
            begin = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
            end = (node.end_lineno or node.lineno) + (0 if node.name in new else 2)  # and two empty lines
            lines[begin:end] = [new.get(node.name, "")]
    after = "from d2lpar.data import DataError\n"
    return "".join(lines).replace(after, after + IMPORTED)


def diff_of_script(only: str | None = None) -> str:
    """The difference between both scripts, or between their functions of this name, as a diff; lines are cut at 88."""
    both = [text if only is None else _function(text, only) for text in (original_script(), gpt_script())]
    old, new = (text.splitlines() for text in both)
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2 if only else 0))
    return "\n".join(line[:88] for line in lines[2:] if only is None or not line.startswith("@@"))


def _function(text: str, name: str) -> str:
    [node] = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name]
    return ast.get_source_segment(text, node) or ""
