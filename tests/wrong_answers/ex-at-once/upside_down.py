"""How much of the time is left."""

times_as_fast = 7 / 25
