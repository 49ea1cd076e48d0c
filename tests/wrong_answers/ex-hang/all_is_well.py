"""Sees no difference anywhere."""


def where_they_part(logs):
    return None
