import torch


def share_memory(replicas):
    return any(torch.equal(p, q) for p, q in zip(replicas[0], replicas[1]))
