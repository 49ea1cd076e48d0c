"""How long a rank computes, in ms, not how many images."""

images = 18
