"""`python -m d2lpar bench`: how fast is it here? Every row is a ratio, measured side by side in one run.

A row divides the seconds of what it is compared with by the seconds of ours, repeat by repeat: how many times as fast
ours is. `cases` and `single` hold what is timed, `report` what is made of the times, and `run` puts them together. The
page "How fast is it here?" says what the rows mean.
"""
