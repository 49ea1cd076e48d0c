"""What ranks 0 and 2 send."""

numbers_sent = 5
