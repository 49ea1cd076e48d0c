"""The check of the exercise `ex-uneven`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(6, {
    3: "That is one half; the complete chunks go round, too.",
    4: "That is the number of messages, but one of the chunks has two values.",
    5: "Ranks 0 and 2 send five values. Which chunks does rank 1 send, and which of them twice?",
    8: "Rank 1 does not send every chunk twice: it sends its own chunk only when it is complete.",
}, "Draw the ring, and follow the chunks that leave rank 1.")
