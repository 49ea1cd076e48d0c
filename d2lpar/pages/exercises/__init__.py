"""The checks of the exercises, a module for each: its function `check` says "Right." or what is not right yet."""
