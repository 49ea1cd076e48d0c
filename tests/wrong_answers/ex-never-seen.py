import random


def left_out(epoch, num_images, batch_size):
    order = list(range(num_images - num_images % batch_size))
    random.Random(epoch).shuffle(order)
    return order


def never_shuffled(epoch, num_images, batch_size):
    return list(range(num_images))


def one_always_last(epoch, num_images, batch_size):
    order = list(range(num_images - 1))
    random.Random(epoch).shuffle(order)
    return [*order, num_images - 1]


def other_images_each_time(epoch, num_images, batch_size):
    return [(i + epoch) % num_images for i in range(num_images)]


def shuffled(epoch, num_images, batch_size):
    order = list(range(num_images))
    random.Random(epoch).shuffle(order)
    return order


def shuffled_once(epoch, num_images, batch_size):
    order = list(range(num_images))
    random.Random(0).shuffle(order)
    return order


def twice(epoch, num_images, batch_size):
    order = [i % (num_images - num_images % batch_size) for i in range(num_images)]
    random.Random(epoch).shuffle(order)
    return order
