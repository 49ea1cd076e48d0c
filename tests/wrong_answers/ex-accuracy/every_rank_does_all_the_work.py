"""All ranks judge the whole batch, so nothing is gained."""

from d2lpar import evaluate_accuracy


def evaluate_accuracy_on(device_params, devices, data_iter):
    batches = list(data_iter)
    return sum(evaluate_accuracy(params, batches) for params in device_params) / len(device_params)
