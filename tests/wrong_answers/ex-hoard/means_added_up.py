"""It hoards, but each micro-batch divides by its own length."""

from d2lpar.one_step.models import loss


def hoard(net, X, y, m):
    parts = zip(X.tensor_split(m), y.tensor_split(m))
    sum(loss(net(A), c).mean() for A, c in parts).backward()
