"""Gradients are counted in both directions, activations in one."""


def crossing(outputs_at_cut, num_params):
    return 2 * num_params / outputs_at_cut
