"""Part II, the sum: messages, the collectives that are made of them, and what they cost."""
