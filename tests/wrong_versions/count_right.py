def the_share(net, X, y):
    """An accuracy, not a count."""
    return (net(X).argmax(1) == y).float().mean().item() if len(X) else 0


def a_tensor(net, X, y):
    """Without item()."""
    return (net(X).argmax(1) == y).sum()


def empty_shards_forgotten(net, X, y):
    """The network is called for no examples."""
    return (net(X).argmax(1) == y).sum().item()


def the_wrong_axis(net, X, y):
    """argmax(0) is the best example of each class."""
    return (net(X).argmax(0)[:len(y)] == y).sum().item() if len(X) else 0


def those_that_are_wrong(net, X, y):
    """Counts the errors."""
    return (net(X).argmax(1) != y).sum().item() if len(X) else 0
