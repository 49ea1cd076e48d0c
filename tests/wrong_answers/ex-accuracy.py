from d2lpar import evaluate_accuracy, split_batch
from d2lpar.models import lenet


def a_constant(device_params, devices, data_iter):
    """The same answer for every network."""
    return 0.5


def all_work_on_device_0(device_params, devices, data_iter):
    """Looks at every replica, and asks the first one only."""
    assert [params[0] for params in device_params]
    return evaluate_accuracy(device_params[0], data_iter)


def counted_without_the_network(device_params, devices, data_iter):
    """Counts examples instead of right answers."""
    right, count = 0, 0
    for _, y in data_iter:
        right += len(y) - len(y) // 4
        count += len(y)
    return right / count


def every_rank_does_all_the_work(device_params, devices, data_iter):
    """All ranks judge the whole batch, so nothing is gained."""
    batches = list(data_iter)
    return sum(evaluate_accuracy(params, batches) for params in device_params) / len(device_params)


def mean_of_means(device_params, devices, data_iter):
    """Shards and batches of different sizes count the same."""
    parts = [[(s, t) for s, t in zip(*split_batch(X, y, devices))] for X, y in data_iter]
    means = [sum(evaluate_accuracy(p, [part]) if len(part[1]) else 0 for p, part in zip(device_params, row)) / len(devices)
             for row in parts]
    return sum(means) / len(means)


def one_constant_per_number_of_labels(device_params, devices, data_iter):
    """The same share for every network and every number of devices."""
    return 24 / 29


def scores_above_one_half(device_params, devices, data_iter):
    """A score is taken for a probability: more than one class can be above a half, or none."""
    right, count = 0, 0
    for X, y in data_iter:
        for X_shard, y_shard, params in zip(*split_batch(X, y, devices), device_params):
            scores = lenet(X_shard, params)
            right += (scores[range(len(y_shard)), y_shard] > 0.5).sum().item()
        count += len(y)
    return right / count


def the_last_bias_without_the_network(device_params, devices, data_iter):
    """The class with the largest bias, whatever the image."""
    right, count = 0, 0
    for X, y in data_iter:
        _, labels = split_batch(X, y, devices)
        right += sum((shard == params[7].argmax()).sum().item() for params, shard in zip(device_params, labels))
        count += len(y)
    return right / count


def the_remainder_is_dropped(device_params, devices, data_iter):
    """Examples that do not divide are left out."""
    k, right, count = len(devices), 0, 0
    for X, y in data_iter:
        b = len(y) // k
        for r, params in enumerate(device_params):
            if b:
                right += round(b * evaluate_accuracy(params, [(X[r * b:(r + 1) * b], y[r * b:(r + 1) * b])]))
                count += b
    return right / count


def whole_batches_in_turn(device_params, devices, data_iter):
    """Each batch goes to one device, and the others rest."""
    right, count = 0, 0
    for i, (X, y) in enumerate(data_iter):
        right += round(len(y) * evaluate_accuracy(device_params[i % len(devices)], [(X, y)]))
        count += len(y)
    return right / count
