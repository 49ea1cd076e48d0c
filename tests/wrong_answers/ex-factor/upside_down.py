"""The right mean over the mean of the means."""

factor = 4 / 3
