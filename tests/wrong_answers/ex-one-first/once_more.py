"""Nobody begins in the first millisecond."""

milliseconds = 9
