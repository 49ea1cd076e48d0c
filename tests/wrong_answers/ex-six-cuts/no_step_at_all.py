"""Wrong, but one worker has moved."""


def wrong_step(X, y, params, lr, sizes):
    return [p.detach() for p in params]
