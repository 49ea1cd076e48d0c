"""One module per exercise. Its function `check` returns "Right.", or says what is still wrong with the answer.

If the answer is a number worked out by hand, the function is called `check_number`.
"""
