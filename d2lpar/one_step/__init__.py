"""Part I, one step: the yardstick, the step from scratch, and the concise way."""
