"""As if the shards had one size."""

times_as_much = 1
