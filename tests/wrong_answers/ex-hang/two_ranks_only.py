"""Compares ranks 0 and 1, as if there were no others."""
from itertools import zip_longest


def where_they_part(logs):
    for place, calls in enumerate(zip_longest(*logs)):
        if len(logs) > 1 and calls[0] != calls[1]:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None
