"""Does nothing, and the loss stays where it is."""


def step(params, grads, lr):
    return None
