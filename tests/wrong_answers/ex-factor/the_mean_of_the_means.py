"""The number itself, not yet divided by the right one."""

factor = -1
