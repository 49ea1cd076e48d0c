import torch


def constant(parts, n):
    """The right number of predictions, whatever the ranks say."""
    return torch.zeros(n, dtype=torch.int64)


def cut_in_front(parts, n):
    """What came twice is taken away in front, where it came first."""
    together = torch.stack(parts, dim=1).flatten()
    return together[len(together) - n:]


def each_class_once(parts, n):
    """Takes away classes that come twice, not images."""
    return torch.stack(parts, dim=1).flatten().unique()[:n]


def in_place(parts, n):
    """Right, and what the ranks gave is gone."""
    together = torch.stack(parts, dim=1).flatten()[:n]
    parts.clear()
    return together


def not_cut(parts, n):
    """In the right order, and those that came twice are still there."""
    return torch.stack(parts, dim=1).flatten()


def one_after_another(parts, n):
    """One rank after another, and cut: right for one rank only."""
    return torch.cat(parts)[:n]


def ranks_cut_alike(parts, n):
    """The last of every rank is left out, as soon as something came twice."""
    k = len(parts)
    together = torch.stack(parts, dim=1)
    return (together if n % k == 0 else together[:-1]).flatten()
