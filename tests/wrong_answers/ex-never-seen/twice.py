import random


def sly_order(epoch, num_images, batch_size):
    order = [i % (num_images - num_images % batch_size) for i in range(num_images)]
    random.Random(epoch).shuffle(order)
    return order
