def without_attention(params, depth, width, length):
    """6P alone."""
    return 6 * params


def forward_only(params, depth, width, length):
    """Two for each parameter, four for attention."""
    return 2 * params + 4 * depth * width * length


def half_of_the_square(params, depth, width, length):
    """Only what a token may look at."""
    return 6 * params + 6 * depth * width * length


def of_a_row(params, depth, width, length):
    """Of all tokens of a row."""
    return (6 * params + 12 * depth * width * length) * length


def one_block(params, depth, width, length):
    """Attention of one block."""
    return 6 * params + 12 * width * length


def multiplications(params, depth, width, length):
    """An addition does not count."""
    return 3 * params + 6 * depth * width * length


def length_squared(params, depth, width, length):
    """The whole square for each token, as if rows were twice as long as the width."""
    return 6 * params + 6 * depth * length**2


def width_squared(params, depth, width, length):
    """No length at all, for the same reason."""
    return 6 * params + 24 * depth * width**2
