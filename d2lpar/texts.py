"""A small GPT, texts for it that every machine has, and the loss over the tokens of all ranks.

A token is a byte. `paragraphs` reads texts from PyTorch's own documentation, `pack` puts them into rows, `GPT` predicts
each next token, and `token_backward` computes the gradient of the mean over all tokens, however many each rank has.
"""

from __future__ import annotations

import inspect
import math
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def paragraphs(longest: int = 255) -> list[bytes]:
    """The paragraphs of PyTorch's docstrings, in UTF-8, each once, in pieces of at most `longest` bytes.

    A paragraph that is too long is cut at the ends of lines. They are read from the package that is installed, so a
    different version of PyTorch has different ones.
    """
    modules = (torch, torch.nn, torch.nn.functional, torch.optim, torch.distributed, torch.utils.data, torch.autograd,
               torch.linalg, torch.fft, torch.special, torch.Tensor)
    found: dict[bytes, None] = {}  # a dictionary keeps the order
    for module in modules:
        for _, member in sorted(vars(module).items()):
            text = getattr(member, "__doc__", None) if callable(member) else None
            for paragraph in inspect.cleandoc(text if isinstance(text, str) else "").split("\n\n"):
                found |= dict.fromkeys(_pieces(paragraph.strip().encode(), longest))
    return list(found)


def _pieces(paragraph: bytes, longest: int) -> list[bytes]:
    """Whole lines as far as possible."""
    pieces = [b""]
    for line in paragraph.replace(b"\0", b"").splitlines():
        if pieces[-1] and len(pieces[-1]) + 1 + len(line) <= longest:
            pieces[-1] += b"\n" + line
        else:
            pieces += [line[i:i + longest] for i in range(0, len(line), longest)]
    return [piece for piece in pieces if piece.strip()]


def pack(texts, length):
    """Rows of length + 1 tokens. Each text follows a 0, and goes into the last row if
    it still fits there, otherwise into a new row. Zeros fill up a row.

    Args:
        texts: a list of `bytes`, none of which contains a 0.
        length: of a row, without its last token, which is only a target.

    Returns:
        Tokens of dtype int64 and shape (rows, length + 1). Each row begins and ends with a 0.

    Raises:
        ValueError: if a text is as long as a row, or longer.
    """
    if any(len(text) >= length for text in texts):  # package only
        raise ValueError(f"a text must be shorter than a row, {length}")  # package only
    rows = []
    for text in texts:
        if not rows or len(rows[-1]) + 1 + len(text) > length:
            rows.append([])
        rows[-1] += [0, *text]
    return torch.tensor([row + [0] * (length + 1 - len(row)) for row in rows])


def inputs_and_targets(rows):
    """All tokens but the last, and for each of them the next one, or -100: after a 0, a
    0 is not counted.

    Args:
        rows: tokens of shape (rows, length + 1), as `pack` returns them.

    Returns:
        Two tensors of shape (rows, length): the first is a view of `rows`, and the second is new.
    """
    x, y = rows[:, :-1], rows[:, 1:]
    return x, y.masked_fill((x == 0) & (y == 0), -100)


class Block(nn.Module):
    """Attention, then an MLP; each adds its output to its input."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x, mask):
        """Both of shape (rows, length, width)."""
        qkv = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # rows, heads, length, width of a head
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder: for each token of a row, the scores (logits) of the next one."""

    def __init__(self, width=64, depth=2, heads=4, length=256, num_tokens=256):
        super().__init__()
        self.tokens = nn.Embedding(num_tokens, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, num_tokens, bias=False)

    def forward(self, x):
        """Scores (rows, length, num_tokens) for tokens x of shape (rows, length)."""
        index = torch.arange(x.shape[1], device=x.device)
        begin = index.where(x == 0, 0).cummax(1).values  # where a token's text begins
        same_text = begin[:, :, None] == begin[:, None, :]
        mask = (same_text & (index[:, None] >= index))[:, None]  # one for all heads
        x = self.tokens(x) + self.positions(index - begin)
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.norm(x))


def token_backward(model, batches, bf16=False):
    """Compute the gradient of the mean loss over the counted tokens of all ranks'
    batches, pairs of inputs and targets; return that mean. Exchange gradients once.

    All ranks call it at the same time, with gradients that are None or zero.

    Args:
        model: a network in DistributedDataParallel, which returns scores of shape (rows, length, tokens).
        batches: this rank's micro-batches, at least one; targets of -100 are not counted, and may be all of a batch.
        bf16: whether the forward pass runs under autocast to bfloat16, on the device of the inputs.

    Returns:
        The mean loss over the counted tokens of all ranks, in nats.
    """
    count = torch.stack([(y != -100).sum() for _, y in batches]).sum()
    dist.all_reduce(count)
    mean = torch.zeros((), dtype=torch.float64)
    for i, (x, y) in enumerate(batches, 1):
        with nullcontext() if i == len(batches) else model.no_sync():
            with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
                scores = model(x).flatten(0, 1)
                share = F.cross_entropy(scores, y.flatten(), reduction="sum") / count
            (share * dist.get_world_size()).backward()  # DDP averages over the ranks
        mean = mean + share.detach()
    dist.all_reduce(mean)
    return mean.item()


def decay_groups(net, decay=0.1):
    """Parameter groups for AdamW: matrices and embeddings decay, the rest does not.

    Returns:
        Two groups, the first with a `weight_decay` of `decay`, and the second with none.
    """
    params = list(net.parameters())
    return [{"params": [p for p in params if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0}]


def warm_cosine(step, num_updates, warm_up=10):
    """The learning rate of update `step`, counted from 0, as a fraction of its peak."""
    falling = max(0, step - warm_up) / max(1, num_updates - warm_up)
    return min(1, (step + 1) / warm_up) * (0.55 + 0.45 * math.cos(math.pi * falling))


def train_texts(rank, net, rows, num_updates, backward=token_backward, bf16=False,
                batch=12, micro=2, lr=3e-3, clip=1.0):
    """Train on `batch` rows per update; each rank takes its share in micro-batches of
    `micro` rows. Return losses, gradient norms before clipping, and the network.

    Args:
        rank: the number of this rank in the group, which is there already.
        net: trained in place; all ranks start with rank 0's parameters.
        rows: as `pack` returns them, the same on all ranks; after the last one, the first is next.
        backward: called with a model, micro-batches and `bf16`, as `token_backward` is.
        lr: the peak of the learning rate.
        clip: the largest norm of a gradient.

    Returns:
        The mean loss of each update and the norm of its gradient before clipping, both in float64 and of shape
        (num_updates,), and `net`.
    """
    model, losses, norms = DDP(net), [], []
    optimizer = torch.optim.AdamW(decay_groups(net), betas=(0.9, 0.95))
    for step in range(num_updates):
        which = torch.arange(step * batch, (step + 1) * batch) % len(rows)
        mine = rows[which].tensor_split(dist.get_world_size())[rank]
        batches = [inputs_and_targets(part) for part in mine.split(micro)]
        for group in optimizer.param_groups:
            group["lr"] = lr * warm_cosine(step, num_updates)
        optimizer.zero_grad()
        losses.append(backward(model, batches, bf16))
        norms.append(nn.utils.clip_grad_norm_(net.parameters(), clip).item())
        optimizer.step()
    return *(torch.tensor(x, dtype=torch.float64) for x in (losses, norms)), net


def flop_per_token(params, depth, width, length):
    """Operations per token of a training step: 6 for each parameter that multiplies,
    and 12 * depth * width * length for attention, whose whole square is counted.

    Args:
        params: the number of parameters in matrices that multiply: no biases, no LayerNorms, and no embeddings that
            are only looked up.
        depth: the number of blocks.
        width: the number of values of a token's vector.
        length: the number of tokens of a row.

    Source: Chowdhery et al., 2022, "PaLM", Appendix B.
    """
    return 6 * params + 12 * depth * width * length


@torch.no_grad()
def sample(net: nn.Module, start: bytes = b"", most: int = 160, temperature: float = 0.8, seed: int = 0) -> str:
    """A text that the network writes, token by token, until it ends the text or has written `most` bytes."""
    x, generator = torch.tensor([[0, *start]]), torch.Generator().manual_seed(seed)
    while x.shape[1] <= most:
        chances = (net(x)[0, -1] / temperature).softmax(0)
        token = torch.multinomial(chances, 1, generator=generator)
        if not token:
            break
        x = torch.cat([x, token[None]], 1)
    return bytes(x[0, 1:].tolist()).decode("utf8", "replace")
