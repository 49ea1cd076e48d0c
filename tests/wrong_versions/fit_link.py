def ordinary_least_squares(sizes_bytes, seconds):
    """Errors count in seconds."""
    beta_s_per_byte, alpha_s = np.polyfit(sizes_bytes, seconds, 1)
    return Link(float(alpha_s), float(beta_s_per_byte))


def swapped(sizes_bytes, seconds):
    """`polyfit` returns the slope first."""
    t = np.asarray(seconds)
    alpha_s, beta_s_per_byte = np.polyfit(sizes_bytes, t, 1, w=1 / t)
    return Link(float(alpha_s), float(beta_s_per_byte))


def a_bandwidth(sizes_bytes, seconds):
    """It returns bytes per second instead of seconds per byte."""
    t = np.asarray(seconds)
    slope, alpha_s = np.polyfit(sizes_bytes, t, 1, w=1 / t)
    return Link(float(alpha_s), float(1 / slope))


def the_weights_are_not_squared_away(sizes_bytes, seconds):
    """`polyfit` squares the weighted errors, so they must not be squared before."""
    t = np.asarray(seconds)
    slope, alpha_s = np.polyfit(sizes_bytes, t, 1, w=1 / t**2)
    return Link(float(alpha_s), float(slope))


def two_points(sizes_bytes, seconds):
    """A line through the smallest and the largest message."""
    beta_s_per_byte = (seconds[-1] - seconds[0]) / (sizes_bytes[-1] - sizes_bytes[0])
    return Link(float(seconds[0] - beta_s_per_byte * sizes_bytes[0]), float(beta_s_per_byte))


def a_plain_tuple(sizes_bytes, seconds):
    """The numbers are right, but later cells ask for `alpha_s`."""
    t = np.asarray(seconds)
    slope, alpha_s = np.polyfit(sizes_bytes, t, 1, w=1 / t)
    return float(alpha_s), float(slope)
