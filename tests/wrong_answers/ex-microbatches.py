import torch
from torch.nn import functional as F


def all_in_the_first(scores, labels):
    """Everything in the first part, zero for the others: all microbatches are kept at once, and nothing is saved."""
    every = torch.cat([x.flatten(0, 1) for x in scores])
    mean = F.cross_entropy(every, torch.cat([c.flatten() for c in labels]))
    return [mean, *[0 * x.sum() for x in scores[1:]]]


def backward_is_called(scores, labels):
    """The right parts, but their gradients are added already."""
    count = sum((c != -100).sum() for c in labels)
    parts = [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / count for x, c in zip(scores, labels)]
    for part in parts:
        part.backward(retain_graph=True)
    return parts


def divided_by_texts(scores, labels):
    """Divides by the number of texts."""
    texts = sum(map(len, labels))
    return [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / texts for x, c in zip(scores, labels)]


def filled_places_count(scores, labels):
    """Divides by all positions, including the padding."""
    places = sum(c.numel() for c in labels)
    return [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / places for x, c in zip(scores, labels)]


def labels_overwritten(scores, labels):
    """The right parts, but the caller's labels are changed."""
    count = sum((c != -100).sum() for c in labels)
    parts = [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / count for x, c in zip(scores, labels)]
    for c in labels:
        c[c == -100] = 0
    return parts


def mean_of_means(scores, labels):
    """The mean of each microbatch, divided by their number."""
    return [F.cross_entropy(x.flatten(0, 1), c.flatten()) / len(labels) for x, c in zip(scores, labels)]


def mean_of_means_without_empty_ones(scores, labels):
    """A mean of means that leaves a microbatch without labels out."""
    counted = sum(bool((c >= 0).any()) for c in labels)
    sums = [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") for x, c in zip(scores, labels)]
    return [s / max(1, int((c >= 0).sum())) / counted for s, c in zip(sums, labels)]


def means_weighted_by_places(scores, labels):
    """Weights the means by places, not by labels that count."""
    places = sum(c.numel() for c in labels)
    return [F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") * c.numel() / places / max(1, int((c >= 0).sum()))
            for x, c in zip(scores, labels)]


def one_graph(scores, labels):
    """One loss over everything, cut afterwards: the second backward pass finds the graph freed."""
    classes = scores[0].shape[-1]
    x = torch.cat([s.reshape(-1, classes) for s in scores])
    c = torch.cat([c.flatten() for c in labels])
    losses = F.cross_entropy(x, c, ignore_index=-100, reduction="none") / (c != -100).sum()
    return [part.sum() for part in losses.split([c.numel() for c in labels])]


def only_the_values(scores, labels):
    """Numbers that sum to the mean, without a gradient."""
    count = sum((c >= 0).sum() for c in labels)
    return [(F.cross_entropy(x.flatten(0, 1), c.flatten(), reduction="sum") / count).detach() for x, c in zip(scores, labels)]


def shared_evenly(scores, labels):
    """The whole mean, shared evenly among the parts: only their sum is right."""
    every = torch.cat([x.flatten(0, 1) for x in scores])
    mean = F.cross_entropy(every, torch.cat([c.flatten() for c in labels]))
    return [mean / len(scores) for _ in scores]
