"""The cut of the text, where the means are -2 and -1."""

factor = 9 / 8
