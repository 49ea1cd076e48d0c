"""The check of the exercise `ex-hoard`."""

import torch
from torch import nn

from d2lpar.larger_batches import accumulate_gradients
from d2lpar.pages.kept_bytes import most_kept_bytes
from d2lpar.scratch import distance


def check(hoard):
    """What is not right yet of the answer, in words, or "Right."."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)).double()
    seen = []
    net.register_forward_pre_hook(lambda net, given: seen.append(len(given[0])))
    for n, m in ((12, 3), (13, 5), (24, 8), (7, 7)):
        X, y = torch.randn(n, 6).double(), torch.randint(4, (n,))
        found = []
        for function in (accumulate_gradients, hoard):
            net.zero_grad()
            seen.clear()
            function(net, X, y, m)
            found.append(([p.grad for p in net.parameters()], list(seen)))
        (right, pieces), (ours, own) = found
        case = f"Not yet: {n} examples in {m} micro-batches:"
        if any(g is None for g in ours):
            return f"{case} you leave a parameter without a gradient."
        if own != pieces:
            return f"{case} the network must see {pieces} examples, but it sees {own}."
        far = distance(ours, right)
        if not far < 1e-12:
            return f"{case} your gradient is off by {far:.1%}."
        whole, kept = (most_kept_bytes(function, net, X, y, pieces) for function, pieces in
                       ((accumulate_gradients, 1), (hoard, m)))
        if kept < whole:
            return f"{case} you keep {kept} bytes, but the whole keeps {whole}."
    return "Right."
