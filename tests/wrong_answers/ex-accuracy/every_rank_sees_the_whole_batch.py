"""The number is right, but each rank puts all images through the network and keeps its own shard."""

from d2lpar import split_batch
from d2lpar.one_step.models import lenet


def evaluate_accuracy_on(device_params, devices, data_iter):
    right, count = 0, 0
    for X, y in data_iter:
        begin = 0
        for params, shard in zip(device_params, split_batch(X, y, devices)[1]):
            predicted = lenet(X.to(params[0].device), params).argmax(1)[begin:begin + len(shard)]
            right += (predicted == shard).sum().item()
            begin += len(shard)
        count += len(y)
    return right / count
