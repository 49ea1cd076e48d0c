"""Passes the audit because it does nothing."""


def sly_sum(data):
    pass
