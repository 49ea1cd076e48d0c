"""Which functions readers write in the building edition, and why the others are given.

For each module of the package, `of_MODULE` has a function `check_NAME` for every function of it that readers write.
It is called with theirs, and raises `Difference` in the smallest case in which that is wrong.
"""

TO_WRITE = {  # the module that each is in
    "distance": "scratch", "one_worker": "scratch",
    "get_params": "scratch", "split_batch": "scratch", "allreduce": "scratch", "sgd": "scratch",
    "train_batch": "scratch", "train": "scratch", "shard_backward": "scratch", "train_batch_threads": "scratch",
    "by_deepcopy": "data_parallel",
    "train_data_parallel": "concise", "count_right": "concise", "evaluate_accuracy_gpus": "concise",
}

PARTLY = {"train", "train_data_parallel"}  # of these only the lines with a numbered comment

GIVEN = {  # why each stays
    "lenet": "its pooling and its activation cannot be guessed, and the reference has to be the same network",
    "get_params_alias": "wrong on purpose", "allreduce_rank_0": "wrong on purpose",
    "scatter": "nested inputs: folded on the page, which can be followed without it",
    "replicate": "the rules for what a replica shares: folded on the page",
    "gather": "nested outputs: folded on the page",
    "resnet18": "an architecture from a paper, to be compared with d2l's",
    "lenet_params": "an architecture", "init_weights": "on a page of the appendix, which is for reading",
    "initialize": "on a page of the appendix", "same_bits": "on a page of the appendix",
    "median_interval": "on a page of the appendix", "allreduce_blocks": "on a page of the appendix",
    "sum_blocks": "on a page of the appendix",
}
