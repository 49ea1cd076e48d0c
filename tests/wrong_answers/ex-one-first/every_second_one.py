"""As if every second rank received first."""

milliseconds = 2
