"""Each batch goes to one device, and the others rest."""

from d2lpar import evaluate_accuracy


def evaluate_accuracy_on(device_params, devices, data_iter):
    right, count = 0, 0
    for i, (X, y) in enumerate(data_iter):
        right += round(len(y) * evaluate_accuracy(device_params[i % len(devices)], [(X, y)]))
        count += len(y)
    return right / count
