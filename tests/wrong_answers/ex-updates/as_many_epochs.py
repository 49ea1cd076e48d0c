"""As many epochs are fewer updates."""


def epochs_for_same_updates(num_examples, b, k, num_epochs):
    return num_epochs
