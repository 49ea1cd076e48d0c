"""No batch of the chapter is larger, but the crossing can be."""


def crossing(outputs_at_cut, num_params):
    return min(1024, num_params / outputs_at_cut)
