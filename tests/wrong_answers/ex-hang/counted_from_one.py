"""Counts places from 1."""
from itertools import zip_longest


def where_they_part(logs):
    for place, calls in enumerate(zip_longest(*logs), 1):
        if len(set(calls)) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                parties.setdefault(call, []).append(rank)
            return place, parties
    return None
