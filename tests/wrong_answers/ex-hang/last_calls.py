"""Compares where the ranks stand now, not where they parted."""


def where_they_part(logs):
    place = max(map(len, logs)) - 1
    calls = [log[place] if place < len(log) else None for log in logs]
    if place < 0 or len(set(calls)) == 1:
        return None
    parties = {}
    for rank, call in enumerate(calls):
        parties.setdefault(call, []).append(rank)
    return place, parties
