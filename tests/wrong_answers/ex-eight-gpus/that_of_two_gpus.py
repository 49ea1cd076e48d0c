"""The efficiency that two GPUs have."""

efficiency = 14.0 / 8.8 / 2
