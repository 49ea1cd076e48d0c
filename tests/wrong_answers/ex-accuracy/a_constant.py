"""The same answer for every network."""


def evaluate_accuracy_on(device_params, devices, data_iter):
    return 0.5
