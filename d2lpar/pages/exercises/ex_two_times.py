"""The check of the exercise `ex-two-times`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(16.8, {
    16.0: "That is the time for the bytes. What does each message cost?",
    8.4: "That is the time of the reduce-scatter. And the all-gather?",
    80.8: "That is the time of the naive allreduce.",
    10.5: "You have five rounds, but there are k - 1 in each half.",
    21.0: "You have ten rounds, but there are k - 1 in each half.",
    0.0168: "That is the time in seconds.",
    17.6: "Alpha is the part of 1.1 ms that is left without the time for 1 MB.",
}, "What do 2 MB more cost? And how many rounds are there, with how many bytes?")
