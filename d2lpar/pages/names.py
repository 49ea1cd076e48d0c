"""Where the names lie that pages use beside those that readers take along: `dp.show` is `d2lpar.pages.plot.show`."""

NAMES = {
    "base.buffers": "as_arrays cut",
    "base.devices": "ALL_CORES all_gather_here cores_per_device run_on_device_0",
    "base.door": "bare",
    "base.history": "History",
    "base.timing": "Stopwatch time_each_repeat time_interleaved",
    "data.batches": "CLASSES standin_in_use",
    "data.official_files": "book_sizes",
    "one_step.models": "Residual init_weights",
    "one_step.yardstick": "equal_bits",
    "one_step.scratch": "shard_backward",
    "one_step.replicas": "gather replicate scatter",
    "one_step.data_parallel": "InThreads Replica check_leaves graph_is_kept joined summed trainable trainable_of "
                              "unchanged_on_error ungather",
    "one_step.concise": "count_right unwrap",
    "one_step.step_times": "channel_spans data_spans layer_spans pieces_of stages_of",
    "sums.messages": "deliver exchange record_rounds",
    "sums.collectives": "BLOCK_BYTES allreduce_blocks allreduce_naive",
    "sums.cost": "Link PUBLISHED naive_s ring_s tree_s",
    "larger_batches.accumulation": "cross_entropy",
    "larger_batches.batchnorm": "Normalize along_channels gather_vectors over_examples",
    "processes.launch": "RankError",
    "processes.ddp": "at_end_of_backward flat_gradients gradient_of trained_params write_means",
    "processes.evaluation": "unwrap_ddp",
    "processes.traffic": "Traffic record_rank",
    "pages.plot": "draw_chunks draw_curves draw_cuts draw_dots draw_fit draw_memory draw_panels draw_seeds draw_step "
                  "draw_timeline draw_timelines draw_trainings growing_curve show",
    "pages.explorer": "Slider bars curves show_explorer",
    "pages.stepper": "show_stepper",
    "pages.verdicts": "check verdict",
    "pages.results": "stored_records stored_results stored_script",
    "pages.message_audit": "AuditError audit",
    "pages.published": "published_trainings",
    "pages.step_spans": "record_step",
    "pages.study": "FULL LAST_STEPS SMALL Setting Size predicted run_setting settings",
}
HOMES = {name: module for module, names in NAMES.items() for name in names.split()}
