"""Leaves out the ranks that have made no call."""
from itertools import zip_longest


def where_they_part(logs):
    for place, calls in enumerate(zip_longest(*logs)):
        if len(set(calls)) > 1:
            parties = {}
            for rank, call in enumerate(calls):
                if call is not None:
                    parties.setdefault(call, []).append(rank)
            return place, parties
    return None
