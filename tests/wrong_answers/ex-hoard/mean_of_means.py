"""It hoards, and is right for micro-batches of one length only."""

from d2lpar.one_step.models import loss


def hoard(net, X, y, m):
    parts = zip(X.tensor_split(m), y.tensor_split(m))
    sum(loss(net(A), c).mean() / m for A, c in parts).backward()
