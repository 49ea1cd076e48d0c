"""How much too small it is, not the factor."""

factor = 0.25
