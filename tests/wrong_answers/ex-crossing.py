from math import ceil


def a_whole_number(outputs_at_cut, num_params):
    """Rounded up to a whole batch, at which the two differ."""
    return ceil(num_params / outputs_at_cut)


def activations_in_both_directions(outputs_at_cut, num_params):
    """Each rank sends what crosses once; here it sends it twice."""
    return num_params / (2 * outputs_at_cut)


def at_least_one_example(outputs_at_cut, num_params):
    """No batch is smaller than 1, but the crossing can be."""
    return max(1.0, num_params / outputs_at_cut)


def two_directions_for_the_gradients_only(outputs_at_cut, num_params):
    """Gradients are counted in both directions, activations in one."""
    return 2 * num_params / outputs_at_cut


def upside_down(outputs_at_cut, num_params):
    """The quotient is upside down."""
    return outputs_at_cut / num_params
