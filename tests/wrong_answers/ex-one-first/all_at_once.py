"""All messages travel at once, as if nobody waited."""

milliseconds = 1
