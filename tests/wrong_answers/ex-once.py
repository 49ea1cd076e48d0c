import torch
from torch.utils.data import DistributedSampler


def all_classes_differ(put_together):
    """The page's: where no class comes twice, each class once is each image once."""
    classes = torch.arange(10)
    parts = [classes[list(DistributedSampler(classes, 3, rank, shuffle=False))] for rank in range(3)]
    return torch.equal(put_together(parts, 10), classes)


def always_something_to_cut(put_together):
    """Classes come twice, but there is always something to cut, and it is just what repeats the beginning."""
    classes = torch.tensor([3, 1, 3, 0, 1, 2, 2])
    parts = [classes[list(DistributedSampler(classes, 3, rank, shuffle=False))] for rank in range(3)]
    return torch.equal(put_together(parts, 7), classes)


def how_many_of_each(put_together):
    """Asks how often each class comes, not of which image it is."""
    for n, k in ((7, 3), (8, 2)):
        classes = torch.tensor([3, 1, 3, 3, 0, 1, 1, 3])[:n]
        parts = [classes[list(DistributedSampler(classes, k, rank, shuffle=False))] for rank in range(k)]
        if sorted(put_together(parts, n).tolist()) != sorted(classes.tolist()):
            return False
    return True


def never(put_together):
    """Right about the wrong ones, and wrong about the right one."""
    return False


def nothing_to_cut(put_together):
    """As many images as the ranks can share evenly, so cutting is never asked for."""
    classes = torch.tensor([3, 1, 3, 3, 0, 1, 1, 3])
    parts = [classes[list(DistributedSampler(classes, 2, rank, shuffle=False))] for rank in range(2)]
    return torch.equal(put_together(parts, 8), classes)


def one_rank(put_together):
    """A single rank, which has all images in their order."""
    classes = torch.tensor([3, 1, 3, 3, 0, 1, 1, 3])
    return torch.equal(put_together([classes.clone()], 8), classes)


def only_the_number(put_together):
    """Counts the predictions."""
    for n, k in ((7, 3), (8, 2)):
        classes = torch.tensor([3, 1, 3, 3, 0, 1, 1, 3])[:n]
        parts = [classes[list(DistributedSampler(classes, k, rank, shuffle=False))] for rank in range(k)]
        if len(put_together(parts, n)) != n:
            return False
    return True


def only_the_two(put_together):
    """Refuses the two of the page, and lets through what puts one rank after another."""
    classes = torch.tensor([3, 3, 3, 3])
    parts = [classes[list(DistributedSampler(classes, 2, rank, shuffle=False))] for rank in range(2)]
    return torch.equal(put_together(parts, 4), classes)
