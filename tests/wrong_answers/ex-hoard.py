from d2lpar.larger_batches import accumulate_gradients
from d2lpar.models import loss


def half_is_kept(net, X, y, m):
    """Two graphs are kept at a time, not all."""
    parts = list(zip(X.tensor_split(m), y.tensor_split(m)))
    for half in (parts[:m // 2], parts[m // 2:]):
        if half:
            sum(loss(net(A), c).sum() / len(X) for A, c in half).backward()


def mean_of_means(net, X, y, m):
    """It hoards, and is right for micro-batches of one length only."""
    parts = zip(X.tensor_split(m), y.tensor_split(m))
    sum(loss(net(A), c).mean() / m for A, c in parts).backward()


def means_added_up(net, X, y, m):
    """It hoards, but each micro-batch divides by its own length."""
    parts = zip(X.tensor_split(m), y.tensor_split(m))
    sum(loss(net(A), c).mean() for A, c in parts).backward()


def saves_memory(net, X, y, m):
    """Right, and it saves memory: nothing is broken."""
    accumulate_gradients(net, X, y, m)


def the_whole_at_once(net, X, y, m):
    """The whole minibatch goes through the network at once."""
    accumulate_gradients(net, X, y, 1)
