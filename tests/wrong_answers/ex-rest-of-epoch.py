import torch


def from_its_own_start(step, n, batch_size, seed):
    """The bug of the page: every life begins with the order of epoch 0."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
    done = step % -(-n // batch_size)
    return [order[i:i + batch_size] for i in range(0, n, batch_size)][done:]


def of_everybody(step, n, batch_size, seed):
    epoch, done = divmod(step, -(-n // batch_size))
    torch.manual_seed(10**6 * seed + epoch)
    return [chosen.tolist() for chosen in torch.randperm(n).split(batch_size)[done:]]


def of_the_next_seed(step, n, batch_size, seed):
    epoch, done = divmod(step, -(-n // batch_size))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    return [chosen.tolist() for chosen in order.split(batch_size)[done:]]


def without_the_last(step, n, batch_size, seed):
    epoch, done = divmod(step, n // batch_size)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(10**6 * seed + epoch))
    return [chosen.tolist() for chosen in order.split(batch_size)[:n // batch_size][done:]]


def from_the_beginning(step, n, batch_size, seed):
    epoch = step // -(-n // batch_size)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(10**6 * seed + epoch))
    return [chosen.tolist() for chosen in order.split(batch_size)]


def shuffled_anew(step, n, batch_size, seed):
    """What is left is right as a set, and shuffled once more at each call."""
    epoch, done = divmod(step, -(-n // batch_size))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(10**6 * seed + epoch))[done * batch_size:]
    again = torch.randperm(len(order), generator=torch.Generator().manual_seed(step))
    return [chosen.tolist() for chosen in order[again].split(batch_size)]


def of_pythons_random(step, n, batch_size, seed):
    import random
    epoch, done = divmod(step, -(-n // batch_size))
    random.seed(10**6 * seed + epoch)
    order = list(range(n))
    random.shuffle(order)
    return [order[i:i + batch_size] for i in range(0, n, batch_size)][done:]


def turned(step, n, batch_size, seed):
    epoch, done = divmod(step, -(-n // batch_size))
    order = torch.arange(n).roll(10 * seed + epoch)
    return [chosen.tolist() for chosen in order.split(batch_size)[done:]]


def of_a_later_epoch_of_another_seed(step, n, batch_size, seed):
    epoch, done = divmod(step, -(-n // batch_size))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(3 * seed + epoch))
    return [chosen.tolist() for chosen in order.split(batch_size)[done:]]


def tensors_in_one_order(step, n, batch_size, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return [list(chosen) for chosen in order.split(batch_size)[step % -(-n // batch_size):]]
