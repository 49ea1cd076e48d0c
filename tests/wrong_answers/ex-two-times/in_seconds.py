"""Right, but in seconds."""

milliseconds = 0.0168
