"""How many times 8 images."""

images = 6
