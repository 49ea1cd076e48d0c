"""No batch is smaller than 1, but the crossing can be."""


def crossing(outputs_at_cut, num_params):
    return max(1.0, num_params / outputs_at_cut)
