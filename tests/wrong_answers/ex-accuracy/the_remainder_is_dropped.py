"""Examples that do not divide are left out."""

from d2lpar import evaluate_accuracy


def evaluate_accuracy_on(device_params, devices, data_iter):
    k, right, count = len(devices), 0, 0
    for X, y in data_iter:
        b = len(y) // k
        for r, params in enumerate(device_params):
            if b:
                right += round(b * evaluate_accuracy(params, [(X[r * b:(r + 1) * b], y[r * b:(r + 1) * b])]))
                count += b
    return right / count
