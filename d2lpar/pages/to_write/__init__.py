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
    # How few bytes can an allreduce send?
    "allreduce_naive": "collectives", "allreduce_tree": "collectives",
    "reduce_scatter": "collectives", "all_gather": "collectives", "allreduce_ring": "collectives",
    # What does BatchNorm see?
    "moments": "batchnorm", "combine_moments": "batchnorm", "moments_of_all": "batchnorm",
    "gradient_of_input": "batchnorm",
    # How large may a batch be?
    "linear_lr": "larger_batches", "warmup_lr": "larger_batches", "noise_scale": "larger_batches",
    "accumulate_gradients": "larger_batches",
    # When does data parallelism pay?
    "fit_link": "cost", "naive_s": "cost", "tree_s": "cost", "ring_s": "cost", "halving_s": "cost",
    "allreduce_flat": "collectives",
    # Does the law hold on other people's clusters?
    "efficiency_at": "cost",
    # What one memory allows
    "rounds_s": "cost",
    # Three ways to share the work
    "sum_over_ranks": "ways", "column_row_mlp": "ways", "gpipe_order": "ways",
    "alone_s": "ways", "data_parallel_s": "ways", "tensor_parallel_s": "ways", "pipeline_s": "ways",
    # What is the unit of a batch when examples are texts?
    "pack": "texts", "token_backward": "texts", "flop_per_token": "texts",
    "broadcast_start": "ddp", "average_gradients": "ddp", "average_flat": "ddp", "sendable": "ddp", "finish_average": "ddp",
    "assign_buckets": "ddp",
    "ring_chunks": "ranks", "count_right_on_ranks": "ddp",
    "padded": "sharding", "mean_part": "sharding", "all_gather_parts": "sharding", "reduce_gradient": "sharding",
    "step_and_gather": "sharding", "write_whole": "checkpoints", "newest_checkpoint": "checkpoints",
}

PARTLY = {"train", "train_data_parallel"}  # of these only the lines with a numbered comment

GIVEN = {  # why each stays
    "lenet": "its pooling and its activation cannot be guessed, and the reference has to be the same network",
    "scatter": "nested inputs: folded on the page, which can be followed without it",
    "replicate": "the rules for what a replica shares: folded on the page",
    "gather": "nested outputs: folded on the page",
    "resnet18": "an architecture from a paper, to be compared with d2l's",
    # How few bytes can an allreduce send?
    "allreduce_passing": "it is wrong on purpose", "allreduce_whole": "it is wrong on purpose",
    "allreduce_behind": "it is wrong on purpose",
    # Two bugs that train without an error
    "get_params_alias": "it is wrong on purpose", "allreduce_rank_0": "it is wrong on purpose",
    # Case study: nine points lower on two GPUs
    "add_gradients": "the case study is for reading, and this is its instrument",
    "stepped": "the case study is for reading, and this is its instrument",
    # the appendix is for reading
    "lenet_params": "an appendix page: it is for reading", "init_weights": "an appendix page: it is for reading",
    "initialize": "an appendix page: it is for reading", "median_interval": "an appendix page: it is for reading",
    "double_tree_s": "an appendix page: it is for reading", "hierarchical_ring_s": "an appendix page: it is for reading",
    "hierarchical_halving_s": "an appendix page: it is for reading", "bus_bandwidth": "an appendix page: it is for reading",
    "allreduce_blocks": "an appendix page: it is for reading", "sum_blocks": "an appendix page: it is for reading",
    "same_bits": "an appendix page: it is for reading",
    "average_in_hooks": "it wires `sendable` and `finish_average` to autograd, which is plumbing",
    "ring_allreduce": "`ring_chunks` is its idea; the rest sends and receives, which is plumbing",
    "digest_of": "the names of files depend on its encoding, which cannot be guessed",
    "save_checkpoint": "it puts `digest_of`, `write_whole` and `superseded` together",
    "read_checkpoint": "what `torch.load` raises for a broken file cannot be guessed",
    "parts_to_step": "that a parameter and its part are two views of one tensor is a trick which cannot be guessed",
    "Summed": "half of the adjoint pair, which the page explains", "Copied": "half of the adjoint pair, which the page explains",
    "pipeline_step": "its order is the idea; the rest sends and receives, which is plumbing",
    "inputs_and_targets": "where a target counts follows from `pack`, and the reference has to be the same",
    "Block": "an architecture from a paper", "GPT": "an architecture from a paper",
    "mean_of_means": "it is wrong on purpose",
    "decay_groups": "what decays is a convention", "warm_cosine": "an exercise writes one like it",
    "train_texts": "it puts `token_backward`, clipping and the optimizer together",
    "shard_parameters": "parametrizations, and layers that share a parameter, are plumbing",
}
