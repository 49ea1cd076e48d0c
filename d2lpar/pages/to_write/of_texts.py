"""The checks of the functions of `d2lpar.texts` that readers write; one of them needs ranks."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from d2lpar.pages.differences import compare, kind
from d2lpar.pages.on_ranks import compare_on_ranks


def check_pack(yours):
    for words, texts, length in (
            ("for one text of two bytes and rows of four", [b"ab"], 4), ("for two texts that fit into a row of six", [b"ab", b"c"], 6),
            ("for a second text that fills the row exactly", [b"ab", b"c"], 5),
            ("for a second text that is one byte too long for the row", [b"ab", b"cd"], 5),
            ("for a third text that would fit into the first row", [b"ab", b"cdef", b"g"], 6),
            ("for a text that is one byte shorter than a row", [b"abc"], 4),
            ("for a text with a letter of two bytes, both above 127", ["né".encode()], 4)):
        compare(yours, words, lambda texts=texts, length=length: (list(texts), length))


def gradients(rank, fn, targets, bf16=False):
    """The gradients of a small network in float32; `targets` are those of each rank's batches."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4))
    model, exchanged, scores = DDP(net), [], []

    def counted(state, bucket):
        exchanged.append(bucket.index())
        work = torch.distributed.all_reduce(bucket.buffer().div_(torch.distributed.get_world_size()), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, counted)
    net.register_forward_hook(lambda module, args, output: scores.append(str(output.dtype).removeprefix("torch.")))
    batches = []
    for one in targets[rank]:
        y = torch.tensor([one])
        batches.append(((y.abs() + 1) % 4, y))
    mean = fn(model, batches, bf16) if bf16 else fn(model, batches)
    grads = [p.grad.flatten() for p in net.parameters() if p.grad is not None]
    found = {"the dtype of the scores": ", ".join(dict.fromkeys(scores)),
             "the result": mean if mean is None else torch.tensor(mean) if isinstance(mean, float) else kind(mean),
             "the gradient of the mean over all tokens": torch.cat(grads) if grads else "missing",
             "the number of forward passes": len(scores), "the number of exchanges of gradients": len(exchanged)}
    if bf16:  # a right gradient may be rounded differently
        found |= {name: "finite" if isinstance(x, torch.Tensor) and x.isfinite().all() and x.dtype == torch.float32 else "wrong"
                  for name, x in [*found.items()][1:3]}
    return found


def check_token_backward(yours):
    none = -100
    compare_on_ranks(yours, "if each rank has one batch of two tokens", gradients, [[[1, 2]], [[3, 1]]])
    compare_on_ranks(yours, "if rank 0 has a batch of three tokens and rank 1 a batch of one", gradients,
                     [[[1, 2, 3]], [[3, none, none]]])
    compare_on_ranks(yours, "if each rank has two batches of one token", gradients, [[[1], [2]], [[3], [1]]])
    compare_on_ranks(yours, "if rank 0 has batches of three tokens and one, and rank 1 of two and two", gradients,
                     [[[1, 2, 3], [2, none, none]], [[3, 1, none], [1, 3, none]]])
    compare_on_ranks(yours, "if the batches have rows of different lengths", gradients, [[[1, 2, 3], [2]], [[3, 1], [1, none, 3]]])
    compare_on_ranks(yours, "if rank 0 has a batch without a counted token", gradients, [[[none, none], [1, 2]], [[3, 1], [2, 3]]])
    compare_on_ranks(yours, "on three ranks, with batches of different sizes", gradients,
                     [[[1, 2, 3], [2, none, none]], [[3, 1, none], [1, 3, 3]], [[1, none, none], [2, none, none]]], world_size=3)
    compare_on_ranks(yours, "with bf16=True", gradients, [[[1, 2], [3, 1]], [[3, 1], [2, 2]]], True)


def check_flop_per_token(yours):
    for case in ({"params": 10, "depth": 0, "width": 4, "length": 8}, {"params": 0, "depth": 1, "width": 4, "length": 8},
                 {"params": 100, "depth": 3, "width": 4, "length": 32}, {"params": 114_688, "depth": 2, "width": 64, "length": 128}):
        words = ", ".join(f"{name}={value:,}" for name, value in case.items())
        compare(yours, f"for {words}", lambda case=case: tuple(case.values()))
