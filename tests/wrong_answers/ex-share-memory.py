import torch


def all_must_be_shared(replicas):
    return all(len({p.data_ptr() for p in same}) < len(replicas) for same in zip(*replicas))


def equal_values(replicas):
    return any(torch.equal(p, q) for p, q in zip(replicas[0], replicas[1]))


def only_b1(replicas):
    return replicas[0][1].data_ptr() == replicas[1][1].data_ptr()


def only_the_first_two(replicas):
    return any(p.data_ptr() == q.data_ptr() for p, q in zip(replicas[0], replicas[1]))
