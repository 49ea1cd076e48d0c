"""What only the pages and their authors need: figures, explorers, checks of exercises, stored results, bench, study.

No module outside this room imports it, but for the names that `d2lpar` looks up when they are first used.
"""
