"""Three units are lost when it fills, and three more when it empties."""

micro_batches = 54
