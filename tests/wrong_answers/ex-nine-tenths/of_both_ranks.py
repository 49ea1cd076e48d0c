"""The images of two ranks together."""

images = 96
