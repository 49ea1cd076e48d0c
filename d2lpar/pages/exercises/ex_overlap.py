"""The check of the exercise `ex-overlap`."""




def check(end_s):
    """What is not right yet of the answer, in words, or "Right."."""
    ready = [0.004, 0.003, 0.002, 0.001]
    cases = [
        ("one bucket of two", [[1, 0]], [2.0, 1.0], [10, 20], 0.5, 0.1, 5.5),
        ("two that do not meet", [[1], [0]], [9.0, 1.0], [10, 20], 0.5, 0.1, 10.5),
        ("two that meet", [[1], [0]], [2.0, 1.0], [10, 20], 0.5, 0.1, 5.0),
        ("one late", [[2], [1], [0]], [1.0, 2.0, 8.0], [10, 10, 10], 0.5, 0.0, 9.5),
        ("a late one in the midst", [[3, 2], [1], [0]], [5.0, 6.0, 2.0, 1.0],
         [10, 10, 10, 10], 1.0, 0.1, 10.0),
        ("other places", [[0, 2], [1]], [3.0, 1.0, 2.0], [10, 20, 30], 0.5, 0.1, 10.0),
        ("the one between comes last", [[2, 1, 0]], [1.0, 9.0, 2.0], [10, 10, 10],
         0.5, 0.1, 12.5),
        ("lower places first", [[0, 1], [2]], [1.0, 4.0, 2.0], [10, 20, 30],
         0.5, 0.1, 11.0),
        ("no beta", [[3], [2], [1], [0]], ready, [1, 1, 1, 1], 0.01, 0.0, 0.041),
    ]
    for name, buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte, right in cases:
        given = end_s(buckets, ready_s, size_bytes, alpha_s, beta_s_per_byte)
        if not abs(given - right) < 1e-9:
            return (f"Not yet: {name}: the end is at {right} s, and you say {given},"
                    f" with\n  buckets {buckets}, ready_s {ready_s},\n"
                    f"  size_bytes {size_bytes}, alpha_s {alpha_s}, "
                    f"beta_s_per_byte {beta_s_per_byte}.")
    return "Right."
