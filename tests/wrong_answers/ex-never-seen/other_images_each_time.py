def sly_order(epoch, num_images, batch_size):
    return [(i + epoch) % num_images for i in range(num_images)]
