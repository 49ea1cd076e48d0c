"""Closes a bucket before the layer that would pass the cap."""

megabytes = 3 + 2
