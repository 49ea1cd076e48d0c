"""The check of the exercise `ex-one-gigabit`."""

SIZE, BITS_PER_S, IMAGE_S = 44_703_272, 1e9, 0.22e-3


def check_number(images):
    """What is not right yet of the answer, in words, or "Right."."""
    travel_s = 8 * SIZE / BITS_PER_S
    if 0.99 < images * IMAGE_S / 2 / travel_s < 1.01:
        return "Right."
    if not images > 0:
        return f"Not yet: {images:g} images are none."
    return (f"Not yet: with {images:,.0f} images, the second machine saves {1e3 * images * IMAGE_S / 2:,.0f} ms of "
            f"computing, and the gradient travels for {1e3 * travel_s:,.0f} ms.")
