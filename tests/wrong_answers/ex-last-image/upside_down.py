"""The other way round."""

times_as_much = 1 / 4
