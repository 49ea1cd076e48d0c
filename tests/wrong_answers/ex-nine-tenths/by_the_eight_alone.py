"""Nine tenths of 8 images."""

images = 7.2
