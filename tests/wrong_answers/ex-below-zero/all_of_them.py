"""All changed alike."""


def spoil(seconds):
    return [0.9 * t for t in seconds]
