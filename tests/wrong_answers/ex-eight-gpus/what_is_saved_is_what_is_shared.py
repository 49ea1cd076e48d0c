"""What the second GPU saves is taken for all that can be shared."""

efficiency = 14.0 / (8.8 + 5.2 / 8) / 8
