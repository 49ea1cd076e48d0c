"""The mistakes that `diagnose` knows, each by its name: what is seen, and what to do about it.

Within a stage, only the first rule that holds is reported, so a cause must come before its symptoms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from d2lpar.diagnosis.evidence import Evidence, near


class Rule(NamedTuple):
    """One thing that can be seen: its name, what it is, the numbers, what to do; a note if it may be intended."""

    stage: str  # what is examined; only the first rule of a stage that holds is reported
    name: str
    holds: Callable[[Evidence], object]
    seen: str
    numbers: str
    cure: str
    line: str = ""  # which line of the script is shown: the last "forward", "backward", "clip" or "step"
    fault: bool = True
    watched: str = ""  # the wording for `watch`, which has no single device to compare with, if it must differ


def _elsewhere(_: Evidence) -> bool:
    """Never: `compare` and `judging` report this finding by its name."""
    return False


def _averages(e: Evidence) -> bool:
    """Whether the ranks' gradients are averaged; where clipping hides the factor, DDP is known to average."""
    return near(e.exchange, 1) or bool(e.wrapped and not e.hooked and not e.no_sync and e.factor
                                       and not any(near(e.exchange, x) for x in (e.k, 1 / e.k)))


RULES = [
    Rule("run", "hangs", _elsewhere, "some ranks did not finish in time", "{stands}",
         "All ranks must call the same collectives in the same order. Does a rank skip a minibatch, stop, save or "
         "evaluate on its own?"),
    Rule("run", "different collectives", _elsewhere,
         "the ranks called different collectives, or collectives of different sizes, at the same time", "{stands}",
         "All ranks must call the same collectives in the same order. Does a rank skip its backward pass, or add one "
         "that depends on its own data?"),
    Rule("run", "raises", _elsewhere, "an error is raised", "{error}",
         "Findings from the first step are listed as well"),
    Rule("run", "zero gradients", _elsewhere, "every gradient is exactly zero, on a single device as well", "",
         "Nothing is trained. Does the loss depend on the network's output? Cross-entropy over a single class is "
         "always zero, and so is the gradient of a loss computed from detach() or of ReLUs that are all off",
         watched="every gradient is exactly zero on all ranks"),
    Rule("run", "wrong parameters", _elsewhere, "no step changes a parameter of the network that was passed to train",
         "", "Was the optimizer built from a different network, perhaps a copy, or before fully_shard?",
         watched="no parameter of the optimizer gets a gradient, so no step trains the network"),
    Rule("run", "different start", _elsewhere, "parameters are not the same on all ranks before the first step",
         "{names}", "Broadcast rank 0's parameters after everything is loaded, as DDP does when it wraps. Was a "
         "checkpoint loaded on some ranks only? If a seed is meant to make them equal, set it right before the network "
         "is made"),
    Rule("run", "changed in the forward pass", _elsewhere,
         "the forward pass changes parameters in place, and differently on each rank", "{names}",
         "Does a layer set or renormalise its weights from the examples that it sees, such as nn.Embedding with "
         "max_norm, or an initialisation from the first minibatch? Use the examples of all ranks, or broadcast the "
         "result"),
    Rule("run", "different buffers", _elsewhere, "buffers are not the same on all ranks at the first forward pass",
         "{names}", "Broadcast rank 0's buffers too"),
    Rule("run", "different numbers of steps", _elsewhere,
         "the ranks take a different number of steps from a single device", "{counts}", "{cure}",
         watched="the ranks do not take the same number of steps"),
    Rule("run", "NaN", _elsewhere, "a value is infinite or NaN", "in step {step}, first in {where}",
         "Look at that rank's examples, or at what happens after the allreduce"),
    Rule("run", "different end", _elsewhere,
         "after the last step the network is the same on all ranks, but at the end of the run it is not", "{names}",
         "Did weight averaging (EMA, SWA) start before the replicas were equal, or was something loaded on some ranks "
         "only?"),

    Rule("exchange", "changed between steps", lambda e: e.t and e.apart,
         "the ranks ended a step with the same parameters, but began the next with different ones", "{apart}",
         "Is something loaded or averaged on some ranks only?"),
    Rule("exchange", "changed unlike a single device", lambda e: e.strayed,
         "between two steps all ranks change their parameters in the same way, but not in the way a single device does",
         "{strayed}", "Does the change depend on the world size, or on a shard?"),
    Rule("exchange", "no gradient", lambda e: e.moved_without_gradient,
         "a step moves parameters that have no gradient", "", "Such an optimizer cannot be compared"),
    Rule("exchange", "missing gradient", lambda e: e.missing,
         "some ranks have no gradient for parameters that have one on a single device", "{missing}",
         "Does every rank use the same layers? If your own loop averages only the gradients that are not None, it adds "
         "up different parameters", watched="some ranks have no gradient for parameters that have one on others"),
    Rule("exchange", "DDP's group is too small", lambda e: e.own and 0 < e.group_size < e.k,
         "DDP averages over a process group that does not contain all ranks", "{group_size} of {k}",
         "Leave out process_group, or pass a group of all ranks"),
    Rule("exchange", "old gradients on some ranks", lambda e: e.stale,
         "some ranks accumulate the previous step's gradients, but a single device does not", "rank {stale}",
         "Call zero_grad() on all ranks", "step",
         watched="some ranks accumulate the previous step's gradients, but the others do not"),
    Rule("exchange", "one rank's parameters", lambda e: e.own and e.drifted and e.parameters_of,
         "each rank steps with its own gradient, and then all get the parameters of one rank", "rank {parameters_of}",
         "What the others learned is lost. Average the gradients, before the step"),
    Rule("exchange", "parameters averaged", lambda e: e.own and e.parameters_averaged,
         "each rank steps with its own gradient, and the parameters are averaged", "",
         "That is not the same as averaging the gradients, unless the optimizer is plain SGD. Average the gradients "
         "before the step; for local SGD or DiLoCo, where this is intended, allow it", "step"),
    Rule("exchange", "hook exchanges nothing", lambda e: e.hook_keeps,
         "DDP's communication hook exchanges nothing, so each rank kept its own gradient", "",
         "Remove the hook, or let it average the bucket"),
    Rule("exchange", "in no_sync", lambda e: e.all_own and e.no_sync and not any(step.exchanging for step in e.many),
         "DDP was inside no_sync(), so each rank kept its own gradient", "",
         "Exit no_sync() for the last forward and backward pass before each optimizer step", "forward"),
    Rule("exchange", "unused parameters hold the exchange back", lambda e: e.held_back,
         "gradients were not exchanged, because some parameters that DDP wraps got no gradient",
         "{held_back}", "DDP waits for the gradient of every parameter that it has wrapped. {cure_of_unused}"),
    Rule("exchange", "DDP bypassed", lambda e: e.all_own and e.wrapped and not e.replaced and not e.bypassed and all(
        step.exchanging for step in e.many),
         "the forward pass goes through the DDP wrapper, but gradients were not exchanged", "",
         "DDP's hooks did not run. Was the network moved, cast or copied after wrapping, or does the gradient come "
         "from torch.autograd.grad() instead of backward()?", "forward"),
    Rule("exchange", "DDP bypassed", lambda e: e.bypassed or (e.all_own and e.wrapped and not e.replaced),
         "there is a DDP wrapper, but gradients were not exchanged", "{bypassed_names}",
         "Call the wrapper, net(X), not net.module(X), not a method of net.module, and not the unwrapped network; and "
         "use backward(), not torch.autograd.grad()", "forward"),
    Rule("exchange", "not synchronised", lambda e: e.all_own and not e.replaced,
         "each rank steps with its own shard's gradient; gradients are never averaged", "",
         "Wrap the network in DDP, or write the averages into p.grad{talks}", "step"),
    Rule("exchange", "not exchanged", lambda e: e.own and not e.unsent,
         "some parameters were left out of the exchange", "{own}",
         "Were they added, replaced or unfrozen after wrapping, or skipped by your own loop? Wrap the network when it "
         "is complete and every parameter to be trained has requires_grad=True; with several wrappers, call each of "
         "them. DDP handles neither gradients from torch.autograd.grad nor parameters that it was told to ignore"),
    Rule("exchange", "different loss scales", lambda e: e.unlike and e.loss_scales,
         "the ranks' GradScalers have different scales", "{loss_scales}",
         "Gradients with different factors were averaged. Unscale after the exchange, so that all ranks see the same "
         "infinities, or share one scale"),
    Rule("exchange", "no_sync around the last pass", lambda e: e.unsent and e.no_sync,
         "not every backward pass was exchanged, because DDP was inside no_sync()", "not exchanged: {unsent}",
         "no_sync() belongs around all but the last forward and backward pass before a step", "forward"),
    Rule("exchange", "two backward passes for one forward",
         lambda e: e.unsent and any(len(step.passes) > step.forwards > 0 for step in e.many),
         "not every backward pass was exchanged, because there were fewer forward passes than backward passes",
         "not {unsent}", "DDP exchanges in the first backward pass after its forward pass. Add the losses up and call "
         "backward once", "backward"),
    Rule("exchange", "backward pass not exchanged", lambda e: e.unsent,
         "not every backward pass was exchanged", "not {unsent}",
         "DDP exchanges in the first backward pass after its forward pass. Alternate forward and backward passes, "
         "always through the wrapper, or add the losses up and call backward once", "backward"),
    Rule("exchange", "scaled on each rank", lambda e: e.scaled_after,
         "the ranks have the same gradient up to a factor that differs from rank to rank",
         "{scaled_after} times rank 0's", "Look for a factor after the exchange that depends on the rank or on its "
                                          "shard"),
    Rule("exchange", "only some ranks have the sum", lambda e: e.sum_on,
         "only some ranks have the sum of all gradients", "the sum is on rank {sum_on}",
         "Every rank needs it: use all_reduce, not reduce, and write the result into p.grad on every rank"),
    Rule("exchange", "different gradients", lambda e: e.unlike,
         "the ranks step with different gradients", "{unlike}",
         "Is there an asynchronous all_reduce that is never waited for, or one that is written to a different tensor, "
         "or a gradient from torch.autograd.grad, which DDP does not see? Does each rank add noise of its own, or send "
         "different elements? Or do the ranks call collectives in different orders?{talks}", "step"),

    Rule("gradient", "old gradients on some ranks", lambda e: e.stale,
         "some ranks add a step's gradients to those of the step before, and a single device does not",
         "rank {stale}", "Call zero_grad() on all ranks", "step"),
    Rule("gradient", "one rank's gradient", lambda e: e.only_rank is not None,
         "all ranks step with the gradient of one of them", "rank {only_rank}",
         "The others' gradients are lost. Use all_reduce, not broadcast"),
    Rule("gradient", "not a sum", lambda e: e.extreme,
         "the exchange takes one rank's value for each element", "the {extreme}",
         "Use ReduceOp.SUM and divide by the world size, or ReduceOp.AVG"),
    Rule("gradient", "skipped by some", lambda e: e.without_own,
         "some ranks have no gradient of their own, and the others have one", "none on rank {without_own}",
         "Does a rank skip a minibatch because of its own loss? Let all ranks decide together, with an all_reduce"),
    Rule("gradient", "same examples on all ranks", lambda e: e.examples == "the same",
         "all ranks train on the same examples", "{examples_seen}",
         "Give each rank its own part of the minibatch. Is a sampler missing, or is one rank's minibatch broadcast?"),
    Rule("gradient", "sharded twice", lambda e: e.examples == "fewer",
         "fewer examples go through the network on the ranks than on a single device", "{examples_seen}",
         "The batches that train gets are already this rank's shards. Remove anything that splits them again, such as "
         "a sampler or [rank::world_size]"),
    Rule("gradient", "more examples per step", lambda e: e.examples == "more",
         "more examples go through the network before a step than on a single device", "{times_examples}",
         "Does the number of micro-batches, or the decision when to step, depend on the world size?"),
    Rule("gradient", "different examples", lambda e: e.examples == "others",
         "the ranks train on different examples from a single device in the same step", "{examples_seen}",
         "Shuffle with the same seed on all ranks, then take this rank's part"),
    Rule("gradient", "the others' gradients are lost", lambda e: len(e.many) < e.k and not e.factor,
         "only some ranks step, and not with the gradient of the minibatch", "{off}",
         "Do the gradients of the other ranks reach those that step?"),
    Rule("gradient", "penalty added on every rank", lambda e: e.along_parameters,
         "the excess gradient is proportional to the parameters", "{along_parameters:.3g} times them",
         "A penalty such as weight decay is added on every rank, and then summed. Divide it by the world size"),
    Rule("gradient", "summed in the hook", lambda e: e.hooked and near(e.exchange, e.k) and near(e.loss, 1),
         "DDP's communication hook sums the gradients and does not divide", "{times} the single-device gradient",
         "Divide by the world size in the hook: DDP leaves the division to it"),
    Rule("gradient", "summed after DDP",
         lambda e: e.wrapped and not e.no_sync and near(e.exchange, e.k) and near(e.loss, 1),
         "gradients are summed over the ranks, although DDP has already averaged them",
         "{times} the single-device gradient", "Leave out your own all_reduce of gradients"),
    Rule("gradient", "divided by a fixed number", lambda e: e.fixed_divisor,
         "gradients are summed and divided by a constant that is not the world size",
         "by {fixed_divisor} on {k} ranks", "Divide by get_world_size()"),
    Rule("gradient", "summed", lambda e: near(e.exchange, e.k) and not near(e.loss, 1 / e.k),
         "gradients are summed over the ranks but never divided by the world size",
         "{times} the single-device gradient", "Divide by get_world_size(), once"),
    Rule("gradient", "loss multiplied by world size", lambda e: near(e.loss, e.k) and _averages(e),
         "gradients are averaged over the ranks, but each rank's own gradient is too large by a factor of {k}",
         "{times} the single-device gradient",
         "The loss is multiplied by the world size although it is a mean over the shard. Leave that out", "backward"),
    Rule("gradient", "divided twice", lambda e: near(e.loss, 1 / e.k) and _averages(e),
         "gradients are averaged over the ranks, but each rank's own gradient is already too small by a factor of {k}",
         "{times} the single-device gradient",
         "The loss is a sum, or is divided by the global batch size or by the world size, and averaging divides again. "
         "Use the mean over this rank's shard. If the loss gathers tensors from other ranks: dist.all_gather does not "
         "propagate gradients; torch.distributed.nn.functional.all_gather does", "backward"),
    Rule("gradient", "averaged twice", lambda e: near(e.exchange, 1 / e.k) and near(e.loss, 1),
         "the average of the gradients is divided by the world size once more", "{times} the single-device gradient",
         "It has been divided already. Leave out the division after backward"),
    Rule("gradient", "scaled", lambda e: e.factor and not near(e.factor, 1),
         "the gradient is the single-device gradient times a number", "{times} the single-device gradient",
         "Look for a factor on the loss or on the gradient, or for clipping by a norm, that depends on the world size"),
    Rule("gradient", "clipped by a different norm", lambda e: e.clips_differ,
         "the gradient is the same as on a single device, but is clipped to a different norm", "{clips_differ}",
         "Clip to the same bound on any number of ranks, and by the norm of the averaged gradient, which every rank "
         "has: do not sum norms over the ranks", "clip"),
    Rule("gradient", "reduced precision", lambda e: e.fewer_bits,
         "gradients were computed or sent in lower precision", "{fewer_bits}, {off}", "Fine if intended", fault=False),
    Rule("gradient", "mean of means", lambda e: e.shares == "examples",
         "shards of different sizes are given equal weight", "{off}",
         "Fine if your shards always have the same size. Otherwise sum the loss over the shard, divide by the number "
         "of examples on all ranks, and with DDP multiply by get_world_size()", fault=False),
    Rule("gradient", "mean over micro-batches", lambda e: e.micro_batches and (near(e.exchange, 1) or e.equal_passes),
         "micro-batches of different sizes are given equal weight, on a single device as well", "{micro_batches}",
         "To be exact, sum over the micro-batches and divide once by the number of examples", fault=False),
    Rule("gradient", "mean over tokens", lambda e: e.shares == "tokens",
         "shards with different numbers of tokens, not counting padding, are given equal weight", "{off}",
         "Sum, divide by the number of tokens on all ranks, and with DDP multiply by get_world_size()", "backward"),
    Rule("gradient", "weighted mean", lambda e: e.shares == "others",
         "shards are given equal weight, but a single device weights them differently, as with class weights or "
         "ignored labels",
         "{off}", "To be exact, sum, divide by the sum of the weights on all ranks, and with DDP multiply by "
         "get_world_size()", fault=False),
    Rule("gradient", "loss scaled on each rank", lambda e: e.scaled_by_rank,
         "each rank's own gradient is multiplied by a different number before the gradients are "
         "averaged", "{scaled_by_rank}",
         "Look for a factor on the loss that depends on the rank or on its data, such as the square root of a mean "
         "(RMSE)",
         "backward"),
    Rule("gradient", "scaled in part", lambda e: e.in_part,
         "the gradients of some parameters are scaled, but the other gradients are right", "{in_part}",
         "Is a shared (tied) parameter reduced more than once, or divided by the number of layers that share it? "
         "Reduce each "
         "parameter once"),
    Rule("gradient", "one term times the world size", _elsewhere,
         "one term of the loss counts {k} times as much as on a single device", "{off}",
         "It is multiplied by the world size, or already a sum over the ranks, and the rest of the loss is not. Use "
         "the mean over the shard for every term", "backward"),
    Rule("gradient", "one term divided by the world size", _elsewhere,
         "one term of the loss counts 1/{k} of what it counts on a single device", "{off}",
         "It is divided by a count over all ranks, and averaging divides again. Multiply that term by "
         "get_world_size(), or use the mean over the shard", "backward"),
    Rule("gradient", "buffers follow the shard", lambda e: near(e.exchange, 1) and e.buffers_differ,
         "the gradient depends on buffers that are computed from a shard", "{buffers_differ}, {off}",
         "all_reduce the values that the buffer is computed from, or broadcast the buffer"),
    Rule("gradient", "not a mean over examples", lambda e: near(e.exchange, 1),
         "the shards' gradients are averaged, but the minibatch's gradient is not their average", "{off}",
         "An example's loss depends on the other examples in its shard. If it compares them (contrastive loss, hard "
         "examples), gather what it needs from all ranks, with its gradient; if it divides by a count or a statistic "
         "of the shard, all_reduce that; if it is intended, allow it", "backward"),
    Rule("gradient", "clipped before the average", lambda e: e.scales,
         "each shard's gradient is scaled by a different number before the gradients are averaged", "{scales}",
         "Average first, then clip", "clip", watched="each rank's gradient is clipped before it is averaged"),
    Rule("gradient", "summed in each micro-batch", lambda e: e.pass_sums,
         "the sum after one micro-batch is summed over the ranks again after the next", "by {pass_scales}",
         "Exchange once, after the last backward pass"),
    Rule("gradient", "clipped in each micro-batch", lambda e: e.pass_scales,
         "each micro-batch's gradient is scaled by a different number", "by {pass_scales}",
         "Clip once, after the last backward pass", "clip"),
    Rule("gradient", "unexplained gradient", lambda e: True,
         "the gradient is not a combination of the ranks' own gradients", "{off}",
         "Is each of them changed before the exchange, for example clipped by value, or put back in a different order "
         "after it?", "step"),
    Rule("gradient", "computed differently on each rank", _elsewhere,
         "given the same examples, the ranks compute different gradients", "first in step {step}",
         "Does something depend on the rank: a term or a factor of the loss, a layer that is frozen or in eval mode, "
         "random numbers, or a copy of the network that was made before all ranks had the same parameters?",
         "backward"),

    Rule("update", "different learning rates", lambda e: e.rates_differ,
         "the ranks step with different learning rates", "{rates_differ}",
         "Does a scheduler follow the rank's own loss, or does only some rank call scheduler.step()? Average the loss "
         "over the ranks first", "step"),
    Rule("update", "drift", lambda e: e.drifted,
         "the gradients are the same on all ranks, but the parameters after the step are not", "{drifted}",
         "Does the optimizer have a different state or different options on some rank, or does a line search or "
         "another decision use the rank's own loss?", "step"),
    Rule("update", "outside the network", lambda e: e.others_differ,
         "the optimizer also trains parameters that are not the network's, and they differ between ranks", "",
         "Make them part of the wrapped module. A loss with learned weights, for example, can be a submodule of it"),
    Rule("update", "never updated", lambda e: e.stuck,
         "some parameters are updated on a single device, but never on the ranks", "{stuck}",
         "Are they missing from the optimizer's parameter groups on the ranks, or reset after the step?", "step"),
    Rule("update", "scheduler", lambda e: e.off_schedule,
         "the learning rate is different from a single device's", "{off_schedule}",
         "The steps before that are the same, so the rate is not simply scaled with the world size. Does the scheduler "
         "step once per rank, as Accelerate's prepared scheduler does? Step it once for each step of the optimizer",
         "step"),
    Rule("update", "scaled learning rate", lambda e: e.step_factor and not near(e.step_factor, 1),
         "the gradient is right, but the step is longer or shorter", "{step_factor:.4g} times",
         "Fine if you scale the learning rate with the world size. Run it once with the same rate on both: later steps "
         "could not be compared", "step", False),
    Rule("update", "different update", lambda e: e.other_step,
         "the gradient is right, but the step is not", "",
         "Does the optimizer have different options or a different state on the ranks?", "step"),

    Rule("run", "unequal shards", _elsewhere, "right on equal shards, but not on unequal ones", "{sizes}",
         "If your shards can differ in size: {words}", fault=False),
    Rule("run", "skipped together", _elsewhere, "all ranks skip a step that a single device takes",
         "{ranks} on the ranks, {alone} on a single device",
         "They decide together, but from the data of one shard. Fine if intended; later steps were not compared",
         fault=False),
    Rule("run", "averaged after the step", _elsewhere,
         "each rank steps with its own gradient, and then the parameters are averaged", "",
         "With SGD that is right; with Adam or clipping it is not", fault=False),
    Rule("run", "some ranks step", _elsewhere, "only some ranks step, and the others end up with the parameters of "
                                               "those ranks",
         "", "The comparison used those parameters", fault=False,
         watched="only some ranks step, and the others receive the parameters of those ranks"),
    Rule("run", "random numbers", _elsewhere,
         "two runs on a single device differ, because of augmentation or noise", "{seeds}",
         "So the ranks were compared with each other only", fault=False),
    Rule("run", "dropout", _elsewhere, "switched off here, because ranks and a single device draw different masks", "",
         "In your own run, give each rank a different seed", fault=False),
    Rule("run", "CUDA", _elsewhere, "GPU calls were run on the CPU", "{what}", "Nothing to do", fault=False),
    Rule("run", "BatchNorm", _elsewhere,
         "BatchNorm uses each rank's shard only, as expected; the single device was run the same way, so that "
         "everything else could be compared",
         "the first gradient is off by {off:.2g}% from the whole minibatch's gradient",
         "Use SyncBatchNorm if you want the statistics of the whole minibatch", fault=False),
    Rule("run", "unused parameters", _elsewhere, "some parameters do not affect the loss, on a single device either",
         "{names}", "Nothing to do if that is intended", fault=False,
         watched="some parameters do not affect the loss"),
    Rule("run", "reported loss", _elsewhere, "train returns a different loss, although the gradient is the same",
         "first {alone:.4g} on a single device, and {mean:.4g} on average over the ranks",
         "For a log, take the mean over all examples", fault=False),

    Rule("watch", "no group", _elsewhere, "no process group was initialised, so each process trains by itself", "",
         "Call torch.distributed.init_process_group() before wrapping, on every rank"),
    Rule("watch", "different data sets", _elsewhere,
         "each rank takes its part of a different data set: example {i} is not the same on all ranks", "",
         "Is the data generated or split at random, without a seed?"),
    Rule("watch", "parts scaled differently", _elsewhere,
         "each rank multiplies its own part of the averaged gradient by a different number", "by {scales}",
         "Clip by the norm of the whole gradient. torch.nn.utils.clip_grad_norm_ computes it from the DTensors that "
         "fully_shard creates. In your own code, all_reduce the sum of the squares over the ranks that hold the other "
         "shards, but not over replicas"),
    Rule("watch", "moved or cast after wrapping", _elsewhere,
         "gradients are not exchanged, because the network was moved or cast after DDP had wrapped it", "",
         "DDP lost its hooks on the parameters. Move or cast the network first, and then wrap it"),
    Rule("watch", "gradients of earlier steps", _elsewhere,
         "{when}a step's gradient still contains the previous step's gradient", "",
         "Call optimizer.zero_grad() once per step: after optimizer.step(), not between the micro-batches of one step"),
    Rule("watch", "same parts", _elsewhere,
         "each rank's part of the parameters starts with the same random numbers", "{names}",
         "If you initialise p.to_local(), use a different seed for each shard. If you initialise the DTensors "
         "themselves, PyTorch draws different numbers for each shard on a GPU, but not on a CPU. Or initialise the "
         "whole network before fully_shard"),
    Rule("watch", "resumed run differs", _elsewhere,
         "resumed from its first checkpoint, the script does not continue as the uninterrupted run does", "{off}",
         "Save and restore the parameters, the optimizer's state, the scheduler, the GradScaler, the epoch number for "
         "set_epoch and the position within the epoch, on every rank. If the checkpoint is meant to start a new run, "
         "allow it"),
    Rule("watch", "clipped while scaled", _elsewhere,
         "gradients are clipped before the GradScaler's factor is divided out", "{scale:g}",
         "Call scaler.unscale_(optimizer) before clipping"),
    Rule("watch", "all ranks save", _elsewhere, "all ranks write the same file", "{file}",
         "Save on rank 0 only, and let the others wait if they read it"),
    Rule("watch", "sum of gradients", _elsewhere,
         "gradients are summed over the ranks and not divided by the world size, and the loss's scale is not known", "",
         "That is right if the loss is divided by the number of examples on all ranks. Run diagnose to tell",
         fault=False),
    Rule("watch", "changed after the exchange", _elsewhere,
         "{when}gradients are changed after the exchange, in the same way on all ranks", "",
         "Fine if intended", fault=False),
    Rule("watch", "exchanged inside step()", _elsewhere,
         "the optimizer exchanges gradients inside step(), and the parameters after it are the same on all ranks", "",
         "Whether it averages the gradients is not checked", fault=False),
    Rule("watch", "weight of the examples", _elsewhere,
         "the weights of a step's examples in the loss do not add up to 1", "{weight}",
         "Fine if that is your own factor. If it changes with the number of ranks, it is not: run diagnose to tell",
         fault=False),
    Rule("watch", "evaluation in training mode", _elsewhere,
         "a forward pass without gradients runs in training mode", "", "Call net.eval() before it", fault=False),
    Rule("watch", "not in an optimizer", _elsewhere,
         "some parameters get gradients but are not in any optimizer", "{names}", "Fine if intended", fault=False),
    Rule("watch", "same dropout", _elsewhere,
         "all ranks start from the same random state, so they draw the same dropout masks", "",
         "Seed each rank with seed + rank, after the network is made", fault=False),
    Rule("watch", "same random numbers", _elsewhere,
         "all ranks draw the same random numbers in every step, for different examples", "from {generator}",
         "For noise, masks or mixing, seed each rank with seed + rank, after the network is made. Fine if all ranks "
         "need the same numbers, as for a permutation that they share", fault=False),
    Rule("watch", "gradients thrown away", _elsewhere,
         "the gradients of {thrown} of {passes} backward passes were zeroed before any step used them", "",
         "Does an epoch end in the middle of an accumulation window? With more ranks an epoch has fewer minibatches, "
         "so a larger share of it is lost. Fine if intended", fault=False),
    Rule("watch", "same example on several ranks", _elsewhere,
         "in {several} of {steps} steps, a rank trains on an example that another rank trains on in the same step", "",
         "Does each rank shuffle with its own seed, or are the ranks at different places in the data or in different "
         "epochs? Fine if the examples are drawn with replacement", fault=False),
    Rule("watch", "same augmentation", _elsewhere,
         "the examples are augmented at random, and all ranks start from the same random state, so the first "
         "examples of all shards are changed in the same way", "",
         "Seed each rank with seed + rank, after the network is made", fault=False),
]
NAMES = [rule.name for rule in RULES]
# What to do about a finding where parameters are in parts on the ranks.
CURES_OF_PARTS = {
    "not synchronised": "Was fully_shard given a mesh with only one rank in it, or not called on this network? Without "
                        "a mesh, fully_shard uses all ranks",
    "not exchanged": "fully_shard averages only the gradients of parameters that the module had when fully_shard was "
                     "called. Were these added or replaced afterwards, or named in ignored_params? Complete the "
                     "network first; then call fully_shard on its blocks, and last on the whole network. Or average "
                     "their gradients yourself",
    "backward pass not exchanged": "Call set_requires_gradient_sync(True) before the last forward and backward pass "
                                   "before each optimizer step, and False before the others",
    "different start": "fully_shard does not broadcast parameters. Unsharded parameters, and the replicas in a "
                       "two-dimensional mesh, must start from the same values: load or broadcast them, or set the "
                       "same seed on all ranks right before the network is made",
}
