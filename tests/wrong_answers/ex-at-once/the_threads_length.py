"""The length of one timeline, not how the two compare."""

times_as_fast = 7
