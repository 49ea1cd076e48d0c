"""Which functions readers write in the building edition, and why the others are given.

For each module of the package, `of_MODULE` has a function `check_NAME` for every function of it that readers write.
It is called with theirs, and raises `Difference` in the smallest case in which that is wrong.
"""

TO_WRITE = {  # the module that each is in
    "distance": "scratch", "one_worker": "scratch",
    "get_params": "scratch", "split_batch": "scratch", "allreduce": "scratch", "sgd": "scratch",
    "train_batch": "scratch", "train": "scratch", "shard_backward": "scratch", "train_batch_threads": "scratch",
}

PARTLY = {"train"}  # of these only the lines with a numbered comment

GIVEN = {  # why each stays
    "lenet": "its pooling and its activation cannot be guessed, and the reference has to be the same network",
}
