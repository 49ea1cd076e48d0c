"""In percent."""

efficiency = 100 * 14.0 / 4.9 / 8
