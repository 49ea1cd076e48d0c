import random


def sly_order(epoch, num_images, batch_size):
    order = list(range(num_images - num_images % batch_size))
    random.Random(epoch).shuffle(order)
    return order
