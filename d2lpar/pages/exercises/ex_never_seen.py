"""The check of the exercise `ex-never-seen`."""

from itertools import pairwise

EPOCHS = 50


def check(sly_order):
    """What is not right yet of the answer, in words, or "Right."."""
    for num_images, batch_size in ((3558, 32), (70, 16)):
        orders = [sly_order(epoch, num_images, batch_size) for epoch in range(EPOCHS)]
        if orders[0] is None:
            return "Not yet: sly_order returns nothing."
        orders = [[int(i) for i in order] for order in orders]
        for epoch, order in enumerate(orders):
            if sorted(order) != list(range(num_images)):
                return f"Not yet: the first test fails, because epoch {epoch} does not contain every image once."
        if min(sum(a != b for a, b in zip(*pair)) for pair in pairwise(orders)) < num_images / 2:
            return "Not yet: the second test fails, because from one epoch to the next most images keep their place."
        rest = num_images % batch_size
        seen = {i for order in orders for i in order[:num_images - rest]}
        if len(seen) != num_images - rest:
            return (f"Not yet: {num_images - len(seen)} of {num_images} images are never seen in {EPOCHS} epochs; "
                    f"there should be {rest}.")
    return "Right."
