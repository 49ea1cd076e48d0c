import random


def sly_order(epoch, num_images, batch_size):
    order = list(range(num_images - 1))
    random.Random(epoch).shuffle(order)
    return [*order, num_images - 1]
