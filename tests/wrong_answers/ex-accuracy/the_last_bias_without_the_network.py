"""The class with the largest bias, whatever the image."""

from d2lpar import split_batch


def evaluate_accuracy_on(device_params, devices, data_iter):
    right, count = 0, 0
    for X, y in data_iter:
        _, labels = split_batch(X, y, devices)
        right += sum((shard == params[7].argmax()).sum().item() for params, shard in zip(device_params, labels))
        count += len(y)
    return right / count
