"""Keeps one rank for each call, the last."""
from itertools import zip_longest


def where_they_part(logs):
    for place, calls in enumerate(zip_longest(*logs)):
        if len(set(calls)) > 1:
            return place, {call: [rank] for rank, call in enumerate(calls)}
    return None
