"""As if no bucket could be larger than its cap."""

megabytes = 6
