"""The check of the exercise `ex-eight-gpus`."""

from d2lpar.pages.exercises.hints import by_hand

check_number = by_hand(5 / 14, {
    2.857: "That is the speed-up; divide it by the number of GPUs.",
    35.7: "That is a percentage; the efficiency is a number between 0 and 1.",
    4.9: "That is the time of an epoch on eight GPUs, in seconds.",
    0.795: "That is the efficiency of two GPUs.",
    0.199: "With this efficiency, eight GPUs would take as long as two.",
}, "The second GPU saves 5.2 of the 14.0 s. So how many of the 14.0 s can be divided?")
