"""Takes it for a deadlock."""

milliseconds = float("inf")
