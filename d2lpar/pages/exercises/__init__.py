"""The checks of the exercises, a module for each: its function `check` says "Right." or what is not right yet.

Where the answer is a number, found by hand, the function is called `check_number`.
"""
