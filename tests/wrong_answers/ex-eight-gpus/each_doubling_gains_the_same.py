"""Each doubling gains as much as the first."""

efficiency = (14.0 / 8.8 / 2) ** 3
