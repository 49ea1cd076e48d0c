"""The check of the exercise `ex-microbatches`."""

import torch
from torch.nn import functional as F


def minibatches_of_texts():
    """Minibatches in micro-batches: their scores, their labels, and the mean loss of the whole minibatch."""
    draw = torch.Generator().manual_seed(0)
    for shapes in ([(2, 3)] * 2, [(4, 5), (1, 5), (3, 2)], [(3, 4), (2, 2)], [(2, 6)]):
        scores = [torch.randn(*shape, 7, generator=draw).double() for shape in shapes]
        labels = [torch.randint(7, shape, generator=draw) for shape in shapes]
        for i, c in enumerate(labels):
            c[0, 1 + i % (c.shape[1] - 1):] = -100  # the first text is short
        if shapes == [(3, 4), (2, 2)]:
            labels[1][:] = -100
        scores = [x.requires_grad_() for x in scores]
        every = torch.cat([x.reshape(-1, 7) for x in scores])
        whole = F.cross_entropy(every, torch.cat([c.flatten() for c in labels]))
        yield scores, labels, whole


def check(loss_parts):
    """What is not right yet of the answer, in words, or "Right."."""
    for scores, labels, whole in minibatches_of_texts():
        right = torch.autograd.grad(whole, scores)
        given = [list(scores), list(labels)]
        before = [[x.detach().clone() for x in xs] for xs in given]
        parts = loss_parts(*given)
        if parts is None:
            return "Not yet: loss_parts returns nothing."
        parts, k = list(parts), len(scores)
        if len(parts) != k or not all(torch.is_tensor(p) for p in parts):
            return f"Not yet: return {k} tensors for {k} micro-batches, not {parts!r}."
        same = all(len(now) == len(then) and all(map(torch.equal, now, then))
                   for now, then in zip(given, before))
        if not same or any(x.grad is not None for x in scores):
            return "Not yet: you changed the scores, a gradient or the labels."
        case = f"Not yet: {[int((c >= 0).sum()) for c in labels]} labels that count: "
        total = sum(p.item() for p in parts)
        if not abs(total - whole.item()) < 1e-12:
            return f"{case}the parts must sum to {whole.item():.6f}, not {total:.6f}."
        for i, part in enumerate(parts):
            if not part.requires_grad:
                return f"{case}part {i} has no gradient."
            try:
                found = torch.autograd.grad(part, scores, materialize_grads=True)
            except RuntimeError as error:
                return f"{case}part {i} has no backward pass left after those of the others: {str(error)[:60]}."
            for j, (ours, theirs) in enumerate(zip(found, right)):
                if not (ours - theirs * (i == j)).abs().max() < 1e-12:
                    return (f"{case}part {i} has the wrong gradient for the scores of "
                            f"micro-batch {j}.")
    return "Right."
