"""As many updates, but an epoch more than are needed where they divide."""


def epochs_for_same_updates(num_examples, b, k, num_epochs):
    before = num_epochs * -(-num_examples // b)
    return before // -(-num_examples // (k * b)) + 1
