"""The speed-up, not yet divided by eight."""

efficiency = 14.0 / (3.6 + 10.4 / 8)
