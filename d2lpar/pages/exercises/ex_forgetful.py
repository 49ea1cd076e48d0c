"""The check of the exercise `ex-forgetful`."""

import torch

from d2lpar.data_parallel import DataParallel, gather, replicate, scatter


def check(Forgetful):
    """The outputs must be right, and DataParallel must refuse it for the gradient that is lost."""
    net, X, devices = Forgetful(), torch.rand(7, 4), [torch.device("cpu")] * 3
    outputs = [replicate(net, device)(A) for device, A in zip(devices, scatter(X, devices))]
    if not torch.allclose(gather(outputs, devices[0]), net(X), atol=1e-5):
        return "Not yet: the replicas' outputs differ from the plain network's, and that would be noticed."
    try:
        DataParallel(net, devices)(X)
    except ValueError as error:
        if "depends on a trainable tensor in" not in str(error):
            return f"Not yet: DataParallel refuses it for a different reason: {error}."
        net(X).sum().backward()
        return "Right." if list(net.parameters()) else "Not yet: without parameters, ByHand stops with an error."
    return "Not yet: DataParallel accepts it: no gradient is lost, or the plain network has none."
