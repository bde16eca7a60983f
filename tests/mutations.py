"""The mutation check: put one mistake at a time into a copy of the source, and see that a test turns red.

    python tests/mutations.py           # hours; writes docs/mutations.md, fails if a mistake survives
    python tests/mutations.py sweep ρ   # only those with one of these words in their name; the other rows stay

The tests are run on a copy of the tree, so the checkout itself is never touched.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# what: (file, text, what it becomes)
MUTATIONS = {
    "sign of the price in the costs": ("core/costs.py", "return errors + prices", "return errors - prices"),
    "errors and hits swapped in the costs": ("core/costs.py", "(predictions != labels", "(predictions == labels"),
    "tie rule of the oracle": ("core/costs.py", "return costs.argmin(dim=-1)", "return costs.shape[-1] - 1 - costs.flip(-1).argmin(dim=-1)"),
    "tie rule of the decision": ("core/decisions.py", "return scores.shape[-1] - 1 - scores.flip(-1).argmax(dim=-1)", "return scores.argmax(dim=-1)"),
    "sum_others: own cost added, not left out": ("core/rewards.py", "keepdim=True) - costs", "keepdim=True) + costs"),
    "complement: sign": ("core/rewards.py", "(1 - costs / scale)", "(1 + costs / scale)"),
    "complement: not clipped": ("core/rewards.py", ".clamp(min=0)", ""),
    "comp-sum (tdef, mild): sign of the differences": (
        "methods/comp_sum.py",
        "scores[..., None, :] - scores[..., :, None]",
        "scores[..., :, None] - scores[..., None, :]",
    ),
    "comp-sum: ρ of the other expert": ("methods/comp_sum.py", "rho.to(scores)[:, None], dim=-1", "rho.to(scores)[None, :], dim=-1"),
    "comp-sum: sign of the loss": ("methods/comp_sum.py", "return (rewards * comp", "return -(rewards * comp"),
    "ce, cwce: sign of the loss": ("methods/cross_entropy.py", "return weights.to(scores)[target] *", "return -weights.to(scores)[target] *"),
    "cwce: weights by frequency, not its inverse": ("methods/cross_entropy.py", "inverse = 1 / counts", "inverse = counts"),
    "cwce: posterior multiplied by the weights": ("methods/cross_entropy.py", "scores - self.weights", "scores + self.weights"),
    "ldam: sign of the margin": ("methods/ldam.py", "(z - shift)", "(z + shift)"),
    "ldam: larger margins for frequent experts": ("methods/ldam.py", "counts**-0.25", "counts**0.25"),
    "ldam: sign of the loss": ("methods/ldam.py", "return F.cross_entropy(scale", "return -F.cross_entropy(scale"),
    "comp-sum: sign of 1 − τ": ("methods/comp_sum.py", "torch.expm1((1 - tau) * log_sums)", "torch.expm1((tau - 1) * log_sums)"),
    "comp-sum: posterior for every τ": ("methods/comp_sum.py", "return self.tau < self.tau_limit", "return True"),
    "posterior: τ the wrong way": ("core/decisions.py", "(1 - tau) * log_matrix.diagonal", "(tau - 1) * log_matrix.diagonal"),
    "cost-sensitive: sign of the margins": (
        "methods/cost_sensitive.py",
        "scores[..., :, None] - scores[..., None, :]",
        "scores[..., None, :] - scores[..., :, None]",
    ),
    "cost-sensitive: ρ of the other expert": ("methods/cost_sensitive.py", "rho.to(scores)[:, None]", "rho.to(scores)[None, :]"),
    "cost-sensitive: the expert itself counted": ("methods/cost_sensitive.py", "masked_fill(_own(psi), 0).sum", "sum"),
    "cost-sensitive: sign of the regret": ("methods/cost_sensitive.py", "(costs - costs.gather(1, right))", "(costs + costs.gather(1, right))"),
    "margin loss: not capped": ("methods/cost_sensitive.py", "(1 - margins).clamp(0, 1)", "(1 - margins).clamp(0)"),
    "logit adjustment: frequent experts lifted in the loss": ("methods/logit_adjustment.py", "scores + shift.to(scores), target", "scores - shift.to(scores), target"),
    "logit adjustment: frequent experts lifted in the decision": ("methods/logit_adjustment.py", "scores - self.shift", "scores + self.shift"),
    "focal: more on what is easy": ("methods/focal.py", "-torch.expm1(log_p)", "torch.exp(log_p)"),
    "class-balanced: β of the number, not its inverse": ("methods/cross_entropy.py", "(1 - beta**counts) / (1 - beta)", "(1 - beta) / (1 - beta**counts)"),
    "one-vs-all: costs for rewards": ("methods/one_vs_all.py", "one_vs_all_loss(outputs, complement(costs, self.reward_scale))", "one_vs_all_loss(outputs, 1 - complement(costs, self.reward_scale))"),
    "cascade: the last confident expert": ("methods/one_vs_all.py", "confident.int().argmax(dim=1)", "argmax_last(confident.int())"),
    "cascade: the dearest first": ("methods/one_vs_all.py", "argsort(stable=True)", "argsort(stable=True, descending=True)"),
    "sampling: validation too": ("routing/assemble.py", "validation=held_out,", "validation=sampled(held_out, division),"),
    "sampling: over for under": ("data/splits.py", 'if sampling == "over"', 'if sampling == "under"'),
    "ρ shifted by one expert": ("core/rho.py", "rho = total * tie_groups(shares, groups) + offset", "rho = total * tie_groups(shares, groups).roll(1) + offset"),
    "ρ: sign of the offset": ("core/rho.py", "tie_groups(shares, groups) + offset", "tie_groups(shares, groups) - offset"),
    "ρ: square root for the cube root": ("core/rho.py", "** (1 / 3)", "** (1 / 2)"),
    "posterior: ρ left out": ("core/decisions.py", "stationary_log(log_matrix) + rho.log()", "stationary_log(log_matrix)"),
    "posterior: transposed matrix": ("core/decisions.py", "scores[..., None, :] / rho[:, None]", "scores[..., None, :] / rho[None, :]"),
    "the test split used for validation": ("routing/datamodule.py", "self._in_order(self.splits.validation)", "self._in_order(self.splits.test)"),
    "the validation split used for the test": ("routing/datamodule.py", "self._in_order(self.splits.test)", "self._in_order(self.splits.validation)"),
    "validation rows left in training": ("routing/assemble.py", "part(arrays.train_inputs, train, panel.train", "part(arrays.train_inputs, torch.cat([train, validation]), panel.train"),
    "crop: sign of the vertical shift": ("data/augment.py", "+ draws[:, :1]", "- draws[:, :1]"),
    "crop: shifted before the flip": ("data/augment.py", "x.flip(1), x)", "-x.flip(1), x)"),
    "flip: everything": ("data/augment.py", "draws[:, 2:].bool()", "draws[:, 2:] >= 0"),
    "augmentation the same every epoch": ("data/batches.py", '"augment", epoch', '"augment", 0'),
    "ranks see the same rows": ("data/batches.py", "return order[self.rank :: self.world], draws", "return order[:: self.world], draws"),
    "SVHN: channels first": ("data/sets/images.py", "split.data.transpose(0, 2, 3, 1)", "split.data.transpose(0, 3, 2, 1)"),
    "checksums never looked at": ("data/sets/prepared.py", "file_sha256(file) != sha256", "False"),
    "experts: wrong at home": ("experts/synthetic.py", "== torch.arange(p)", "!= torch.arange(p)"),
    "table: right for wrong": ("data/sets/outcomes.py", "return 1 - values", "return values"),
    "table: predictions right where they differ": ("data/sets/outcomes.py", "[said != true for", "[said == true for"),
    "table: constant columns explode": ("networks/tabular.py", "spread < CONSTANT", "spread > CONSTANT"),
    "table: validation for training": ("data/splits.py", 'said[rows] == "validation"', 'said[rows] != "validation"'),
    "people: a vote drawn twice": ("experts/annotations.py", "left[np.arange(len(left)), vote] -= 1", "left[np.arange(len(left)), vote] -= 0"),
    "people: votes off by one": ("experts/annotations.py", "[:, None] >= ends)", "[:, None] > ends)"),
    "people: labels not of the carved rows": ("experts/annotations.py", "return [people[rows] for rows, _ in splits]", "return [people[: len(rows)] for rows, _ in splits]"),
    "people: any order of the training images": ("experts/annotations.py", "    if wrong:", "    if False:"),
    "people: any order of the test images": ("experts/annotations.py", "if agreement < LEAST_AGREEMENT", "if agreement < 0"),
    "people: any pickle is opened": ("experts/annotations.py", "weights_only=True", "weights_only=False"),
    "people: a seed of their own": ("experts/human.py", "people, machine, machine.seed", "people, machine, None"),
    "CIFAR-100N: origin swapped": ("data/sets/images.py", "origin=(train, test)", "origin=(test, train)"),
    "trained experts: validation rows learned from": ("experts/fitting.py", "arrays.train_labels, request.train, owners", "arrays.train_labels, everything, owners"),
    "trained experts: all of the others' rows": ("experts/fitting.py", "[: round(fraction * len(there))]", "[: round((1 - fraction) * len(there))]"),
    "trained experts: others' classes for its own": ("experts/fitting.py", "train[owned[labels[train]]]", "train[~owned[labels[train]]]"),
    "cross-fit: the fold is trained on": ("experts/fitting.py", "rows[~torch.isin(rows, fold)]", "rows"),
    "trained experts: a byte for every class": ("experts/fitting.py", "np.min_scalar_type(arrays.num_classes - 1)", "np.uint8"),
    "cache: renewed from the parts of a killed making": ("experts/cache.py", "keep=[LOCK] if self.renew else [LOCK, PARTS]", "keep=[LOCK, PARTS]"),
    "cache: class paths in the name": ("utils/identity.py", 'if "_target_" in config and "name" not in config:', 'if "_target_" in config:'),
    "cache: checksum not compared": ("experts/cache.py", '!= known["sha256"]', '== "no"'),
    "cache: the seed is not in the name": ("routing/assemble.py", "data=data, seed=expert_seed, train=", "data=data, train="),
    "noise on validation too": (
        "routing/assemble.py",
        "        whole = replace(whole, costs=costs)\n",
        "        whole = replace(whole, costs=costs)\n        held_out = replace(held_out, costs=held_out.costs + costs.mean())\n",
    ),
    "noise: sign of the clip": ("core/costs.py", "costs + noise * z).clamp(min=0)", "costs + noise * z).clamp(max=0)"),
    "experts: the same draw on train and test": ("experts/synthetic.py", '"experts", "test"', '"experts", "train"'),
    "order of the batches the same every epoch": ("data/batches.py", '"order", epoch', '"order", 0'),
    "best checkpoint: the highest loss": ("learning/checkpoints.py", "< self.best:", "> -self.best:"),
    "best single expert: the dearest": ("core/metrics.py", "mean(dim=0).argmin()", "mean(dim=0).argmax()"),
    "error rate: price added": ("core/metrics.py", "float(cost - price), float(price), ratios", "float(cost + price), float(price), ratios"),
    "validation ignores the decision rule": ("routing/module.py", "self.method.decide(outputs)", "outputs.argmax(dim=1)"),
    "metrics.json before the other files": (
        "runs/folder.py",
        'write_atomically(self.path / "test.npz", save)',
        'write_json(self.path / "metrics.json", metrics)\n        write_atomically(self.path / "test.npz", save)',
    ),
    "calibration: rows not weighed by their mass": ("core/metrics.py", "per_bin(p_hat * total) / weight", "per_bin(p_hat) / weight"),
    "calibration: predicted and observed swapped": ("core/metrics.py", "weight.sum(), predicted, observed]", "weight.sum(), observed, predicted]"),
    "report: sign of the paired difference": ("analysis/report/averages.py", "ours[seed] - theirs[seed]", "theirs[seed] - ours[seed]"),
    "report: normal in place of t": ("analysis/report/averages.py", "float(stdtrit(len(differences) - 1, 0.975))", "1.959964"),
    "report: sign of the distance from the paper": ("analysis/report/compare.py", 'entry["mean"] - paper["mean"]', 'paper["mean"] - entry["mean"]'),
    "report: upper hull": ("analysis/report/averages.py", "hull and y >= hull[-1][1]", "hull and y <= hull[-1][1]"),
    "search: offsets that leave a ρ below 0": ("tuning/strategies.py", "kept = [settings for settings in found if settings is not None]", "kept = [settings or {} for settings in found]"),
    "search: coordinate search keeps the worst": ("tuning/strategies.py", "tried[values.index(min(values))]", "tried[values.index(max(values))]"),
    "search: a temperature of the wrong size": ("tuning/strategies.py", "rounded(total / len(self.shares) + offset)", "rounded(total + offset)"),
    "search: better trials left early": ("tuning/strategies.py", "trials[i].report(value,", "trials[i].report(-value,"),
    "folds: overlapping": ("data/splits.py", "order[number - 1 :: of]", "order[:: of]"),
    "stop_after: one epoch late": ("learning/checkpoints.py", "epoch >= self.stop_after", "epoch > self.stop_after"),
    "sweep: finished runs launched again": ("runs/sweep.py", "    if cell.done and not force:\n        reason", "    if cell.done and force:\n        reason"),
    "sweep: killed runs not tried again": ("runs/sweep.py", "ATTEMPTS = 2", "ATTEMPTS = 1"),
    "sweep: held runs given up": ("runs/sweep.py", "return replace(before, state=State.HELD)", "return replace(before, state=State.FAILED)"),
    "other data taken for finished": ("runs/folder.py", "known != fingerprint", "known == ''"),
    "the next epoch's order used for this one": ("data/batches.py", "self._ahead[0] == self.epoch", "self._ahead[0] >= self.epoch"),
    "expected reward for expected cost": ("methods/one_vs_all.py", "torch.sigmoid(-scores) * self", "torch.sigmoid(scores) * self"),
    "route: ρ by its rule, not the saved one": ("serving/rebuild.py", "known = {name: buffers[name].tolist() for name in component.arguments if name in buffers}", "known = dict[str, object]()"),
    "route: images not brought to the set's white": ("data/inputs.py", "(white / 255)", "1"),
    "route: checksum never looked at": ("serving/exported.py", "if not whole", "if False"),
    "prices of rows: not scaled": ("costs/price_columns.py", "self.scale * answers.prices", "answers.prices"),
    "extreme: for the weakest expert": ("costs/extreme.py", "return int(errors.double().mean(dim=0).argmin())", "return int(errors.double().mean(dim=0).argmax())"),
    "extreme: of equals the dearest": ("costs/extreme.py", "+ steps.sum(dim=1)).argmin()", "- steps.sum(dim=1)).argmin()"),
    "by category: rows of other categories": ("core/metrics.py", "cost[own].mean()", "cost[: len(own)].mean()"),
    "by category: the best single expert chosen on the test split": ("core/metrics.py", "full_like(decisions, best_single(train_costs))", "full_like(decisions, best_single(costs))"),
    "report: baselines of the cell with most seeds, noisy or not": ("analysis/report/compare.py", '(not cell.settings.get("cost.noise"), len(cell.runs))', "len(cell.runs)"),
    "curve: sign of the oracle's price": ("analysis/curve/points.py", "errors + multiplier * prices", "errors - multiplier * prices"),
    "curve: a cascade from the dearest on": ("analysis/curve/points.py", "np.argsort(means,", "np.argsort(-means,"),
    "curve: chances with the price in them": ("analysis/curve/points.py", "1 - (expected - prices)", "1 - (expected + prices)"),
    "curve: area above the line": ("analysis/curve/points.py", "return 1 - float(np.trapezoid", "return float(np.trapezoid"),
    "curve: APGR of the ranking upside down": ("analysis/curve/points.py", "np.unique(-preference,", "np.unique(preference,"),
    "curve: prices of the largest scale": ("analysis/curve/measure.py", "dearest.prices / max(runs)", "dearest.prices"),
    "plugin, cost regression: the price taken off": ("methods/priced.py", "return expected + self.prices.to(expected)", "return expected - self.prices.to(expected)"),
    "plugin, cost regression: the dearest expert": ("methods/priced.py", "return -self.expected_costs(outputs)", "return self.expected_costs(outputs)"),
    "cost regression: right for wrong": ("methods/priced.py", "torch.sigmoid(-self.logits(outputs))", "torch.sigmoid(self.logits(outputs))"),
    "cost regression: the price left in the error": ("methods/priced.py", "self.right(costs - self.prices.to(costs))", "self.right(costs)"),
    "label regression: against what the label says": ("methods/priced.py", "+ torch.logit(right)", "- torch.logit(right)"),
    "evidence: rows that experts have learned": ("routing/assemble.py", "    if learned:\n", "    if not learned:\n"),
    "evidence: the price left in the error": ("routing/assemble.py", "Evidence(split.costs - split.prices,", "Evidence(split.costs,"),
    "guard: the fallback chosen on the test split": (
        "training/score.py",
        "best = metrics_.best_single(chosen_on)",
        "best = metrics_.best_single(splits.test.costs)",
    ),
    "guard: sign of the gain": ("core/guard.py", "paired(costs[:, best] - paid(costs, decisions))", "paired(paid(costs, decisions) - costs[:, best])"),
    "guard: offsets for a gain within the noise": ("core/guard.py", "beyond(gain, error, OFFSETS)", "beyond(gain, error, 0.0)"),
    "guard: sign of an offset": ("core/guard.py", "lift = paid(utilities, rival) - utilities[:, k]", "lift = utilities[:, k] - paid(utilities, rival)"),
    "guard: offsets judged where they were fitted": ("core/guard.py", "fit_offsets(utilities[~rows], costs[~rows])", "fit_offsets(utilities, costs)"),
    "guard: rows that would show a gain, the wrong way": ("runs/summary.py", "(error / gain) ** 2", "(gain / error) ** 2"),
    "guard: offsets for every rule": ("training/score.py", "method.utilities(validation.outputs) if method.by_argmax else None", "method.utilities(validation.outputs)"),
    "route: the guard left out": ("serving/router.py", "own if self.raw else self.guard.decide(self.method.utilities(outputs), own)", "own"),
    "route: the guard of other prices": ("serving/router.py", "other.guard = self.held_out.guard_at(new)", "pass"),
    "aux: the second head in evaluation too": ("networks/heads.py", "if self.training else outputs", "if True else outputs"),
    "aux: kept with the router": ("routing/module.py", "return found if self.aux is None else without_aux(found)", "return found"),
    "aux: the label's weight left out": ("methods/auxiliary.py", "return self.weight * label_loss(outputs, labels)", "return label_loss(outputs, labels)"),
    "aux: costs for rewards": ("methods/auxiliary.py", "one_vs_all_loss(outputs, complement(costs, self.scale))", "one_vs_all_loss(outputs, 1 - complement(costs, self.scale))"),
    "averaged weights: old and new swapped": ("learning/averaging.py", "return min(float(self.decay)", "return 1 - min(float(self.decay)"),
    "averaged weights: no warm-up": ("learning/averaging.py", "(1 + step) / (10 + step))", "1.0)"),
    "averaged weights: judged by the last step": ("learning/learner.py", "return self.network(inputs) if self.averaged is None else self.averaged(inputs)", "return self.network(inputs)"),
    "kept epoch: the one before": ("learning/checkpoints.py", "self.best_epoch = current, epoch", "self.best_epoch = current, epoch - 1"),
    "curve: validation figures off the test rows": ("analysis/curve/trace.py", "marks(known), marks(held)", "marks(known), marks(known)"),
    "route: one tenant's prices for all": ("serving/router.py", "other.method = copy.deepcopy(self.method)", "other.method = self.method"),
    "route: any class of a run's folder is built": ("serving/rebuild.py", "check(RunFolder(folder).config(), trust=trust)", "check(RunFolder(folder).config())"),
    "route: any encoder of a run's folder is built": ("serving/rebuild.py", 'read_component("encoder", described, trust)', 'read_component("encoder", described, None)'),
    "route: classes of other kinds are built": ("serving/rebuild.py", "if not issubclass(find(component), kind)", "if False"),
    "route: prices in the order given": ("serving/router.py", "prices = [prices[name] for name in experts]", "prices = [*prices.values()]"),
    "patience: one epoch late": ("learning/checkpoints.py", "patience=patience, check", "patience=patience + 1, check"),
    "patience: a killed run trains one epoch more": ("learning/checkpoints.py", "trainer.should_stop or self.out_of_patience", "trainer.should_stop"),
    "patience: counted anew after a kill": ("learning/checkpoints.py", 'self.stopping.load_state_dict(state_dict["stopping"])', "pass"),
    "parts of a batch: all count alike": ("data/batches.py", "[(part.stop - part.start) * parts / rows for part in cut]", "[1.0 for part in cut]"),
    "parts of a batch: Lightning's mean not undone": ("data/batches.py", "(part.stop - part.start) * parts / rows", "(part.stop - part.start) / rows"),
    "averaged weights: after every part": ("learning/learner.py", "def optimizer_step(self, *given: Any, **named: Any) -> None:\n        super().optimizer_step(*given, **named)", "def on_train_batch_end(self, *_: Any) -> None:"),
    "cuDNN searched for odd batches": ("learning/learner.py", "search_convolutions(full)", "search_convolutions(True)"),
    "parts of a batch: one row more counts as odd": ("learning/learner.py", "rows == first + 1)", "rows == first)"),
    "sys.exit of a library: taken for Ctrl-C": ("learning/learner.py", "if isinstance(leaving.__context__, KeyboardInterrupt):", "if True:"),
    "bars: epochs from 0": ("learning/progress.py", "trainer.current_epoch + 1}", "trainer.current_epoch}"),
    "labels: missing ones not noticed": ("methods/priced.py", "if not len(known):", "if False:"),
    "cascade: experts counted from 0": ("methods/one_vs_all.py", "numbers - 1, self.threshold", "numbers % self.num_outputs, self.threshold"),
    # Chosen by somebody who had not read the tests.
    "identity hash does not unify 5 and 5.0 inside lists": ("utils/identity.py", "        return [_numbers_alike(item) for item in value]\n", "        return list(value)\n"),
    "out of memory: refuses one halving too early (<= for <)": ("utils/out_of_memory.py", "if rows // (2 * parts) < SMALLEST:", "if rows // (2 * parts) <= SMALLEST:"),
    "aux_weight is left out of the run's identity for aux=label too": ("config/identity.py", "    if kept.get(\"aux\") == \"none\":\n", "    if kept.get(\"aux\") != \"experts\":\n"),
    "trusted modules are matched by prefix of the name, without the dot": ("config/checking.py", "any(target.startswith(f\"{module}.\") for module in trust)", "any(target.startswith(module) for module in trust)"),
    "guard: population instead of sample standard deviation": ("core/guard.py", "float(differences.std() / n**0.5)", "float(differences.std(correction=0) / n**0.5)"),
    "by category: best single expert is chosen on the test costs": ("core/metrics.py", "single = torch.full_like(decisions, best_single(train_costs))", "single = torch.full_like(decisions, best_single(costs))"),
    "row numbers in errors are those of the filtered sheet, not of the file": ("data/sheet.py", "rows = ((found if self.rows is None else self.rows[found]) + 1).tolist()", "rows = (found + 1).tolist()"),
    "split column: validation rows are numbered among all rows, not among the training rows": ("data/splits.py", "validation = torch.from_numpy(np.flatnonzero(said[rows] == \"validation\"))", "validation = torch.from_numpy(np.flatnonzero(said == \"validation\"))"),
    "kept embeddings do not depend on max_length": ("data/text/encoders.py", "json.dumps([identity_of(self.model), self.max_length, list(texts)])", "json.dumps([identity_of(self.model), list(texts)])"),
    "table: rows of equal text may be in both training and test rows": ("data/sets/table.py", "return *draw_whole_groups(draw, labels, groups), None", "return *draw_whole_groups(draw, labels, None), None"),
    "extreme prices: the strongest expert is that of the test rows": ("costs/extreme.py", "    strong = strongest(train)\n", "    strong = strongest(test)\n"),
    "price columns: cost.scale is ignored": ("costs/price_columns.py", "return torch.as_tensor(self.scale * answers.prices)", "return torch.as_tensor(answers.prices)"),
    "a resumed run forgets the best value so far": ("learning/checkpoints.py", "self.best, self.best_epoch = state_dict[\"best\"], state_dict[\"best_epoch\"]", "self.best_epoch = state_dict[\"best_epoch\"]"),
    "a resumed run does not restore the CPU's random stream": ("learning/learner.py", "        torch.set_rng_state(cpu.cpu())\n", "        cpu.cpu()\n"),
    "MLP: columns that are constant in training are not recognised (their std was clamped to 1e-6)": ("networks/tabular.py", "torch.where(spread < CONSTANT, torch.ones_like(spread), spread)", "torch.where(spread <= 0, torch.ones_like(spread), spread)"),
    "text router: mean over the padded width instead of the text's tokens": ("networks/text.py", ".sum(1) / weights.sum(1)", ".sum(1) / weights.shape[1]"),
    "mean by label: rows without a label do not count towards the overall mean": ("methods/priced.py", "    overall = values.mean(dim=0)\n", "    overall = values[known].mean(dim=0)\n"),
    "tau limit: largest over smallest rho": ("methods/comp_sum.py", "return 1 + float(self.rho.min() / self.rho.max())", "return 1 + float(self.rho.max() / self.rho.min())"),
    "cross-fitting: the fold's classifier is trained on the fold too": ("experts/fitting.py", "classifiers.answers(others, fold, False, seed, part)", "classifiers.answers(rows, fold, False, seed, part)"),
    "llm: chat is left out of the identity of a model's kept answers": ("experts/llm/asking.py", "        \"chat\": experts.chat,\n", ""),
    "llm: answers are put back by the order instead of its inverse": ("experts/llm/scoring.py", "[np.argsort(np.array(order))]", "[np.array(order)]"),
    "the training rows are left out of the experts' cache identity": ("routing/assemble.py", "cache.knowing(data=data, seed=expert_seed, train=fingerprint_of(train), coverage=shares)", "cache.knowing(data=data, seed=expert_seed, coverage=shares)"),
    "prices by name become a list in the order they were written": ("routing/fingerprints.py", "listed = {\"prices\": [prices[name] for name in names]}", "listed = {\"prices\": [prices[name] for name in prices]}"),
    "with ema, the exported weights are not the averaged ones": ("routing/module.py", "{f\"network.{name}\": value for name, value in self.averaged.state_dict().items()}", "{f\"network.{name}\": value for name, value in self.network.state_dict().items()}"),
    "sweep with force: the result from before counts as done": ("runs/sweep.py", "return cell.done and not (stamp and cell.run.stamp == stamp)", "return cell.done"),
    "dry run with force=true: finished runs are estimated to take no time": ("runs/cells.py", "left = 0.0 if state == \"finished\" and not force else", "left = 0.0 if state == \"finished\" else"),
    "validation loss is read for the epoch before": ("runs/folder.py", "if row[\"epoch\"] == str(epoch)]", "if row[\"epoch\"] == str(epoch - 1)]"),
    "a run that stopped exactly where stop_after says does not count as paused": ("runs/standing.py", "run.paused_after >= stop_after", "run.paused_after > stop_after"),
    "the encoder's class of a run's folder is built without asking for trust": ("serving/rebuild.py", "component = read_component(\"encoder\", described, trust)", "component = read_component(\"encoder\", described, None)"),
    "force=true keeps the number of micro-batches of the run before": ("training/walk.py", "parts = 1 if force else run.batch_parts", "parts = run.batch_parts"),
    "curve: validation price at a scale is not brought back to the list's prices": ("analysis/curve/trace.py", "statistics.fmean(score.mean_price / scale for score in scores)", "statistics.fmean(score.mean_price for score in scores)"),
    "uniform bound: ceil instead of floor + 1": ("analysis/theory/bounds.py", "steps = torch.floor(torch.log2(ceiling / rho)) + 1", "steps = torch.ceil(torch.log2(ceiling / rho))"),
    "the search judges finished trials by their test loss": ("tuning/study.py", "return cell.run.metrics().validation.deferral_loss", "return cell.run.metrics().deferral_loss"),
    "the options of a search are left out of its folder's name": ("tuning/study.py", "json.dumps([variant(self.config), asdict(options)], sort_keys=True, default=list)", "json.dumps([variant(self.config)], sort_keys=True, default=list)"),
    "route: a probability or cost of exactly 0 is shown as unknown": ("commands/route.py", "if values else \"\" for values in found", "if values and values[name] else \"\" for values in found"),
    "report of a sweep counts finished seeds that were not asked for": ("commands/report.py", "runs = {seed: known.runs[seed] for seed in seeds[others] if seed in known.runs}", "runs = dict(known.runs)"),
    # The same, a second time.
    "after a deferred block Ctrl-C stays deferred for ever (flag not reset)": ("utils/interrupts.py", "    finally:\n        _deferred = False\n", "    finally:\n        pass\n"),
    "a nameless component's class is dropped from the identity (missing not)": ("utils/identity.py", "\"_target_\" in config and \"name\" not in config", "\"_target_\" in config and \"name\" in config"),
    "fold is left out of the run's identity": ("config/identity.py", "\"dry_run\", \"stop_after\")", "\"dry_run\", \"stop_after\", \"fold\")"),
    "any name in l2d's own rooms is trusted, even what a module merely imports": ("config/checking.py", "        return find_class(target) is not None\n", "        return True\n"),
    "numbers in overrides are cut to six digits": ("config/composing.py", "isinstance(value, float) and float(f\"{value:g}\") == value else", "isinstance(value, float) else"),
    "posterior for tau != 1 has the wrong sign": ("core/decisions.py", "log_p = log_p + (1 - tau) *", "log_p = log_p + (tau - 1) *"),
    "guard judges offsets on the rows that they were fitted to": ("core/guard.py", "            offsets, decisions = fit_offsets(utilities, costs), held_out\n", "            offsets = fit_offsets(utilities, costs)\n            decisions = with_offsets(utilities, offsets)\n"),
    "scale of complement rewards may fall below 1": ("core/rewards.py", "return max(1.0, float(costs.max()))", "return float(costs.max())"),
    "extreme prices aim at 95 % of the error patterns, not of the rows": ("costs/extreme.py", "PERCENT * len(errors)", "PERCENT * len(patterns)"),
    "price list: cost.scale is ignored": ("costs/price_list.py", "return self.scale * torch.tensor(", "return torch.tensor("),
    "weights of micro-batches go by the number of cuts instead of parts": ("data/batches.py", "(part.stop - part.start) * parts / rows", "(part.stop - part.start) * len(cut) / rows"),
    "undersampling draws with replacement": ("data/splits.py", "rng.choice(rows, min(sizes), replace=False)", "rng.choice(rows, min(sizes))"),
    "prepared arrays: the checksum is not compared": ("data/sets/prepared.py", "if sha256 is not None and (not file.exists() or file_sha256(file) != sha256):", "if sha256 is not None and not file.exists():"),
    "texts that were cut are never told": ("data/text/encoders.py", "if length >= most]", "if length > most]"),
    "rows seen are not reset between epochs": ("learning/learner.py", "        self.loss_sum = torch.zeros((), device=self.device)\n        self.rows_seen = 0\n", "        self.loss_sum = torch.zeros((), device=self.device)\n"),
    "the seed of Lightning leaks into the caller's environment": ("learning/random_state.py", "            os.environ.pop(name, None)\n", "            pass\n"),
    "cosine head normalises the weights over experts": ("networks/heads.py", "F.normalize(self.weight, dim=-1))", "F.normalize(self.weight, dim=0))"),
    "a text of exactly the model's length is refused": ("networks/text.py", "inputs.shape[1] > positions", "inputs.shape[1] >= positions"),
    "posterior of the weighted cross-entropy multiplies by the weights": ("methods/cross_entropy.py", "scores - self.weights.to(scores).log()", "scores + self.weights.to(scores).log()"),
    "pair margins are divided by the rival's rho": ("methods/cost_sensitive.py", "rho.to(scores)[:, None]", "rho.to(scores)"),
    "cascade takes a place in the order for an expert's number": ("methods/one_vs_all.py", "first = order[confident.int().argmax(dim=1)]", "first = confident.int().argmax(dim=1)"),
    "classes are cut by truncating instead of rounding": ("experts/partition.py", "round(sum(shares[: k + 1]) * num_classes)", "int(sum(shares[: k + 1]) * num_classes)"),
    "votes of people are drawn with replacement": ("experts/annotations.py", "        left[np.arange(len(left)), vote] -= 1\n", ""),
    "chat: the tokenizer adds its special tokens to those of the template": ("experts/llm/scoring.py", "add_special_tokens=not chat", "add_special_tokens=True"),
    "a method is judged on the validation rows that it learned from": ("routing/assemble.py", "split, validation = validation.take(half), validation.take(~half)", "split = validation.take(half)"),
    "validation rows go by the run's seed although the experts have their own": ("routing/assemble.py", "derive_seed(expert_seed, \"validation\")", "derive_seed(division.seed, \"validation\")"),
    "a resumed run's history keeps the epochs after the one it resumes": ("runs/history.py", "if e < epoch}", "if e != epoch}"),
    "force=true keeps the checkpoints": ("runs/folder.py", "first=\"metrics.json\", keep=[LOCK])", "first=\"metrics.json\", keep=[LOCK, \"checkpoints\"])"),
    "sweep: a finished run on other data counts as done": ("runs/sweep.py", "        reason = other_data(cell)\n", "        reason = \"\"\n"),
    "score: the sign of the gain is swapped": ("serving/score.py", "around(costs[:, best] - chosen)", "around(chosen - costs[:, best])"),
    "router.at keeps the guard of the old prices": ("serving/router.py", "other.guard = self.held_out.guard_at(new)", "other.guard = self.guard"),
    "offsets are fitted to methods that do not decide by the argmax": ("training/score.py", "utilities = method.utilities(validation.outputs) if method.by_argmax else None", "utilities = method.utilities(validation.outputs)"),
    "fit: the defaults win over the caller's options": ("api/fit.py", "{**said, **options}.items()", "{**options, **said}.items()"),
    "tdef_loss ignores its scale": ("functional.py", "comp_sum_loss(scores, complement(costs, scale),", "comp_sum_loss(scores, complement(costs),"),
    "report: the reference may differ in more than the method": ("analysis/report/compare.py", " and other.settings_but(\"method.\") == rest:", ":"),
    "APGR: mean over N instead of N + 1 shares": ("analysis/curve/points.py", "/ (len(gains) + 1) / total", "/ len(gains) / total"),
    "zero-one loss of the bound does not count ties": ("analysis/theory/bounds.py", "(score_margins(scores) <= 0)", "(score_margins(scores) < 0)"),
    "coordinate search does not remember the best value": ("tuning/strategies.py", "best, rho, better = min(values), tried[values.index(min(values))], True", "rho, better = tried[values.index(min(values))], True"),
    "l2d route --raw is ignored": ("commands/route.py", "Router.load(options.run, raw=options.raw, trust=options.trust)", "Router.load(options.run, trust=options.trust)"),
    "l2d experts force=true does not make the experts again": ("commands/experts.py", "make_splits(experiment, renew_experts=experiment.settings.force)", "make_splits(experiment)"),
    # The same, a third time.
    "a missing extra is only explained for ModuleNotFoundError, not for other failed imports": ("utils/extras.py", "except ImportError as error:", "except ModuleNotFoundError as error:"),
    "the general verdict style stands before the one for 'routing pays', so that one is never green": ("utils/text.py", "    \"verdict: routing pays\": \"1;32\",  # green\n    \"verdict: \": \"1;33\",  # yellow\n", "    \"verdict: \": \"1;33\",  # yellow\n    \"verdict: routing pays\": \"1;32\",  # green\n"),
    "a failed write leaves its temporary file behind": ("utils/files.py", "    finally:\n        temporary.unlink(missing_ok=True)", "    else:\n        temporary.unlink(missing_ok=True)"),
    "the last fold, such as 5/5, is refused": ("config/checking.py", "not int(found[1]) <= int(found[2]) >= 2", "not int(found[1]) < int(found[2]) >= 2"),
    "the guard for other prices is fitted to errors without the prices": ("core/guard.py", "argmax_last(utilities), self.errors + prices.to(self.errors), best)", "argmax_last(utilities), self.errors, best)"),
    "validation rows of a split column are counted in the whole file, not among the kept rows": ("data/splits.py", "np.flatnonzero(said[rows] == \"validation\")", "np.flatnonzero(said == \"validation\")"),
    "every epoch draws the same augmentation": ("data/batches.py", "derive_seed(self.seed, \"augment\", epoch)", "derive_seed(self.seed, \"augment\")"),
    "cost.scale has no effect on prices from columns": ("costs/price_columns.py", "torch.as_tensor(self.scale * answers.prices)", "torch.as_tensor(answers.prices)"),
    "a package hidden during quick imports stays hidden": ("learning/quick_imports.py", "    try:\n        yield\n    finally:\n        del sys.modules[package]", "    yield"),
    "of epochs with equal validation figures the last is kept, not the first": ("learning/checkpoints.py", "(current := float(trainer.callback_metrics[self.monitor])) < self.best:", "(current := float(trainer.callback_metrics[self.monitor])) <= self.best:"),
    "the caller's own seed variables in the environment are not put back": ("learning/random_state.py", "            os.environ.pop(name, None)\n        os.environ |= seeds\n", "            os.environ.pop(name, None)\n"),
    "the overall mean leaves out rows whose label is unknown": ("methods/priced.py", "overall = values.mean(dim=0)", "overall = values[known].mean(dim=0)"),
    "logit adjustment's posterior adds the prior in the wrong one of its two forms": ("methods/logit_adjustment.py", "(scores if self.post_hoc else scores + self.shift.to(scores))", "(scores + self.shift.to(scores) if self.post_hoc else scores)"),
    "cross-fitted experts learn from the fold that they then predict": ("experts/fitting.py", "others = rows[~torch.isin(rows, fold)]", "others = rows"),
    "the people's all-known classes are put before the machines' rows": ("experts/human.py", "F.pad(machine.knows, (0, 0, 0, self.people), value=True)", "F.pad(machine.knows, (0, 0, self.people, 0), value=True)"),
    "validation figures are of the raw weights although averaged ones are used": ("routing/module.py", "outputs = self(inputs)", "outputs = self.network(inputs)"),
    "prices by name are listed in the order they were written, not the experts'": ("routing/fingerprints.py", "{\"prices\": [prices[name] for name in names]}", "{\"prices\": list(prices.values())}"),
    "the verdict goes by the validation evidence instead of the test evidence": ("runs/summary.py", "guarded, seen = metrics.guarded, metrics.guarded.test", "guarded, seen = metrics.guarded, metrics.guarded.validation"),
    "the verdict's percentages start from the loss without the guard": ("runs/summary.py", "alone = guarded.deferral_loss + seen.gain", "alone = metrics.deferral_loss + seen.gain"),
    "metrics.json is written before timing.json": ("runs/folder.py", "        write_json(self.path / \"timing.json\", timing)\n        write_json(self.path / \"metrics.json\", metrics)\n", "        write_json(self.path / \"metrics.json\", metrics)\n        write_json(self.path / \"timing.json\", timing)\n"),
    "a router at other prices keeps the validation score of the old prices": ("serving/router.py", "        other.validation = None  # it was measured at other prices\n", ""),
    "the exported program has the guard although the router is raw": ("serving/export.py", "self.guard = None if router.raw else router.guard", "self.guard = router.guard"),
    "the best single expert is chosen on training rows that the experts learned": ("training/score.py", "chosen_on = splits.validation.costs if splits.panel.learned else splits.train_costs", "chosen_on = splits.train_costs"),
    "force=true checks the old data before it clears the folder": ("training/walk.py", "    if experiment.settings.force:\n        run.clear()\n    run.check_data(source.fingerprint(experiment))\n", "    run.check_data(source.fingerprint(experiment))\n    if experiment.settings.force:\n        run.clear()\n"),
    "whether routing pays is asked the wrong way round": ("analysis/report/findings.py", "pays=is_below(losses[best], singles)", "pays=is_below(singles, losses[best])"),
    "of equally dear models the less accurate one ends the curve": ("analysis/curve/points.py", "return min(models), min(models, key=lambda one: (-one[0], one[1]))", "return min(models), max(models)"),
    "weights of calibration bins are divided by all runs, also those without calibration": ("analysis/report/averages.py", "[[weight / len(told), p / weight", "[[weight / len(runs), p / weight"),
    "optuna's sampler has no seed": ("tuning/strategies.py", "TPESampler(seed=0, n_startup_trials=STARTUP)", "TPESampler(n_startup_trials=STARTUP)"),
    "the suggested comparison keeps force=true": ("commands/train.py", "(method|seed|force|", "(method|seed|"),
    "a text query is suggested for a router that sees other columns too": ("commands/train.py", " and not dataset.get(\"features\"):", ":"),
    # The same, a fourth time.
    "clearing a folder does not remove the file that makes it look whole first": ("utils/files.py", "    (folder / first).unlink(missing_ok=True)\n    for entry in folder.iterdir():", "    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == first):"),
    "setup.coverage is left out of the run's identity": ("config/identity.py", "{\"setup\": (\"prices\",), \"experts\"", "{\"setup\": (\"prices\", \"coverage\"), \"experts\""),
    "the majority expert is chosen on the scored rows instead of the training rows": ("core/metrics.py", "always(int(cheapest_counts(train_costs).argmax()))", "always(int(cheapest_counts(costs).argmax()))"),
    "the guard for other prices chooses its best single expert by errors alone": ("core/guard.py", "int((self.mean_errors + prices.to(self.mean_errors)).argmin())", "int(self.mean_errors.argmin())"),
    "costs in a DataFrame are taken in its own column order, not the experts'": ("data/given.py", "values.rename(columns=str)[list(names)]", "values.rename(columns=str)"),
    "imported outcomes of each model stay in its own file's order instead of being joined by id": ("data/imported.py", "[samples[key].correct for key in keys]", "[sample.correct for key, sample in samples.items() if key in keys]"),
    "a table's router sees the experts' probability_ columns": ("data/sets/table.py", "(PRICE, \"answer_\", \"probability_\", \"tokens_\",", "(PRICE, \"answer_\", \"tokens_\","),
    "extreme prices are fitted to the validation rows too": ("costs/extreme.py", "return extreme_prices(panel.train.errors[train], panel.names)", "return extreme_prices(panel.train.errors, panel.names)"),
    "the best epoch's weights are not copied, so training goes on changing them": ("learning/checkpoints.py", "value.detach().cpu().clone() for", "value.detach().cpu() for"),
    "the learning rate's schedule moves once an epoch instead of once a step": ("learning/learner.py", "\"interval\": \"step\"", "\"interval\": \"epoch\""),
    "MLP clamps outliers on the upper side only": ("networks/tabular.py", ".clamp(-FAR, FAR)", ".clamp(max=FAR)"),
    "cost regression by label ignores label_weight": ("methods/priced.py", "losses + self.label_weight * label_loss(", "losses + label_loss("),
    "trained experts say that they learned the training rows when they were cross-fitted, and only then": ("experts/trained.py", "learned=self.cross_fit == 1)", "learned=self.cross_fit > 1)"),
    "a language model's kept answers do not depend on the letters": ("experts/llm/asking.py", "        \"letters\": experts.letters,\n", ""),
    "noise on the costs is the same for every seed": ("routing/assemble.py", "stream(division.seed, \"cost noise\")", "stream(0, \"cost noise\")"),
    "history.csv keeps only what was logged last for an epoch": ("runs/history.py", "row = self.rows.get(epoch, {})", "row: dict[str, Any] = {}"),
    "ids in a file of queries are read as numbers, so that 007 comes back as 7": ("serving/queries.py", "read_sheet(path, [*texts, *IDS])", "read_sheet(path, texts)"),
    "saving a router moves router.json into place before its weights": ("serving/saved.py", "key=lambda part: part.name == SAVED", "key=lambda part: part.name != SAVED"),
    "validation and test losses by decision rule are swapped": ("training/score.py", "DecisionLosses(loss(validation, name), loss(test, name))", "DecisionLosses(loss(test, name), loss(validation, name))"),
    "RouterEstimator.fit drops the labels": ("api/estimator.py", "fit(X, y, labels=labels, **self.get_params())", "fit(X, y, **self.get_params())"),
    "report: a cell counts as one of few seeds by the lesser of the two limits": ("analysis/report/compare.py", "len(cell.runs) < max(FEW, len(cell.wanted))", "len(cell.runs) < min(FEW, len(cell.wanted))"),
    "APGR of a run: preference for the weak model taken for that of the strong one": ("analysis/curve/trace.py", "run.preference[:, strong] - run.preference[:, 1 - strong]", "run.preference[:, 1 - strong] - run.preference[:, strong]"),
    "coordinate search goes beyond its number of trials": ("tuning/strategies.py", "for factor in FACTORS][: trials - asked]", "for factor in FACTORS][:trials]"),
    "l2d import harness swaps --metric and --filter": ("commands/import_outcomes.py", "options.metric, options.filter)", "options.filter, options.metric)"),
    "price_to_reach interpolates from the dearer end": ("analysis/curve/points.py", "return float(prices[i - 1] + min(share, 1.0) * (price - prices[i - 1]))", "return float(price - min(share, 1.0) * (price - prices[i - 1]))"),
    "learning curve divides by all seeds, not those that have the epoch": ("analysis/report/read.py", "(epoch, sum(values) / len(values))", "(epoch, sum(values) / len(self.runs))"),
    "best of a block counts the baselines, so the oracle wins": ("analysis/report/tables.py", "if row[\"kind\"] == \"router\" and row[\"mean\"] is not None", "if row[\"mean\"] is not None"),
    "guarded mean only if the guard acted in every seed": ("analysis/report/averages.py", "if not any(run.guarded.changes_decisions for run in runs)", "if not all(run.guarded.changes_decisions for run in runs)"),
    "bound uniform in rho forgets the factor 2 on the complexity": ("analysis/theory/bounds.py", "MarginBound(empirical, 2 * complexity, confidence, uniform)", "MarginBound(empirical, complexity, confidence, uniform)"),
    "constant of Lemma 2 not scaled by the cost scale": ("analysis/theory/router_bound.py", "total - (p - 1) * cost_scale", "total - (p - 1)"),
    "harness prompts that differ are joined if no model has a doc": ("data/imported.py", "if first[key].doc is None or models[other][key].doc != first[key].doc:", "if models[other][key].doc != first[key].doc:"),
    "1_2 in a cell is read as 12": ("data/sheet.py", "return float(\"nan\") if \"_\" in text else float(text)", "return float(text)"),
    "texts that differ in inner white space are different groups": ("data/splits.py", "\" \".join(text.split()), len(numbers)", "text.strip(), len(numbers)"),
    "a column ID becomes a feature": ("data/sets/table.py", "name not in roles and name.lower() != \"id\"", "name not in roles and name != \"id\""),
    "embeddings average over padding too": ("data/text/encoders.py", "(states * mask).sum(1) / mask.sum(1).clamp(min=1)", "states.mean(1)"),
    "a batch of texts is cut by the lengths of other rows": ("data/batches.py", "width_of(self.lengths[order[part]])", "width_of(self.lengths[part])"),
    "positions of left-padded questions count the padding": ("experts/llm/scoring.py", "(mask.cumsum(dim=1) - 1).clamp(min=0).to(device)", "torch.arange(width).expand(len(rows), -1).to(device)"),
    "the weights of a revision are those of main": ("experts/llm/models.py", "from_pretrained(kind, where, revision=name.revision, dtype=getattr(torch, dtype))", "from_pretrained(kind, where, dtype=getattr(torch, dtype))"),
    "cross-fitting also replaces the answers on validation rows": ("experts/fitting.py", "deal_into_folds(request.train, folds,", "deal_into_folds(everything, folds,"),
    "accuracy on others' classes where experts have no classes": ("experts/accuracy.py", "mean(k, nothing if knows is None else ~own[:, k])", "mean(k, ~own[:, k])"),
    "a finished run is shown although the data changed": ("runs/standing.py", "    if standing is Standing.FINISHED and not settings.force:\n        run.check_data(data_fingerprint(experiment))\n", "    if standing is Standing.FINISHED and not settings.force:\n"),
    "verdict says pays after one standard error": ("runs/summary.py", "seen.gain <= SURE * seen.standard_error", "seen.gain <= seen.standard_error"),
    "a sweep fails only if all of its runs failed": ("runs/sweep.py", "    report_table(shop.config.logger, folder, header, rows)\n    if failed:\n", "    report_table(shop.config.logger, folder, header, rows)\n    if len(failed) == len(cells):\n"),
    "a path with an equals sign is split although the file exists": ("commands/import_outcomes.py", "if equals and not Path(text).exists():", "if equals:"),
    "report of a sweep wants only the seeds that are finished": ("commands/report.py", "FinishedCell(names, known.folder, tuple(seeds[others]), runs)", "FinishedCell(names, known.folder, tuple(runs), runs)"),
    "p with a sum below 1 is accepted": ("commands/theory.py", "if abs(sum(p) - 1) > 1e-6:", "if sum(p) - 1 > 1e-6:"),
    "names of folders are checked at their beginning only": ("config/identity.py", "re.fullmatch(r\"\\w[\\w.-]*\", name)", "re.match(r\"\\w[\\w.-]*\", name)"),
    "untrusted classes count as trusted": ("config/checking.py", "partial or bool(node.get(\"_partial_\")), trusted)", "partial or bool(node.get(\"_partial_\")))"),
    "router.save overwrites any folder": ("serving/saved.py", "if folder.exists() and not is_empty(folder) and not is_saved(folder):", "if folder.exists() and not folder.is_dir():"),
    "router.at keeps the old prices in its description": ("serving/router.py", "replace(self.description, prices=tuple(new.tolist()), guard=other.guard)", "replace(self.description, guard=other.guard)"),
    "log-sum form counts the right expert too": ("methods/cost_sensitive.py", "-torch.inf).logsumexp(dim=-1)", "0).logsumexp(dim=-1)"),
    "cost regression clips errors that noise made large": ("methods/priced.py", "max(complement_scale(errors), complement_scale(self.dearest - self.prices.double()))", "complement_scale(errors)"),
    "confusion matrix is transposed": ("core/metrics.py", "cheapest(costs) * p + decisions", "decisions * p + cheapest(costs)"),
    "reward mass not normalised row by row": ("core/rho.py", "share = torch.where(total > 0, rewards / total, torch.zeros_like(rewards))", "share = rewards / total.mean()"),
    "best single expert chosen on resampled rows": ("routing/assemble.py", "train_costs=whole.costs,", "train_costs=sampled(whole, division).costs,"),
    "network stays in evaluation mode after the trial pass": ("routing/build.py", "    network.train()\n", ""),
    "grid of rho leaves given values in force": ("tuning/strategies.py", "return settings | ({} if self.rho[\"values\"] is None else {\"method.rho.values\": None})", "return settings"),
    "the user's folder comes before all other modules": ("utils/own_modules.py", "sys.path.append(folder)", "sys.path.insert(0, folder)"),
    "values in quotes are converted, not refused": ("utils/parameters.py", "ConfigDict(strict=True, allow_inf_nan=False)", "ConfigDict(allow_inf_nan=False)"),
    "a checkpoint may run code": ("learning/checkpoints.py", "torch.load(path, map_location=\"cpu\", weights_only=True)", "torch.load(path, map_location=\"cpu\", weights_only=False)"),
    "mean errors for repricing include the training prices": ("training/score.py", "(chosen_on.double() - splits.prices).mean(dim=0)", "chosen_on.double().mean(dim=0)"),
    "zero_init=false is ignored": ("networks/vision.py", "net.init_weights(zero_init_last=zero_init)", "net.init_weights()"),
    "share_test of extreme prices is that of the training rows": ("costs/extreme.py", "share_test=share(test)", "share_test=share(train)"),
    "names of experts not taken from a DataFrame of errors": ("api/fit.py", "names_of_experts(costs if errors is None else errors, experts,", "names_of_experts(costs, experts,"),
    "repriced curve is that of the run trained at the highest prices": ("analysis/curve/groups.py", "for cell in reversed(alike)", "for cell in alike"),
    "accuracy to reach is set by the strong model's error, not its accuracy": ("analysis/curve/trace.py", "wanted = REACHED * (1 - models[strong][1])", "wanted = 1 - models[strong][1] / REACHED"),
    "runs at different cost.scale are compared in one block": ("analysis/report/compare.py", " or (key == \"cost.scale\" and value != 1)", ""),
    "gain in the summary is relative to the router's loss": ("analysis/report/findings.py", "return 1 - self.mean / self.single if self.single else 0.0", "return self.single / self.mean - 1 if self.mean else 0.0"),
    "points needed falls as 1/m instead of 1/sqrt(m)": ("analysis/theory/bounds.py", "m * ((self.total - self.empirical) / room) ** 2 if", "m * (self.total - self.empirical) / room if"),
    "bound is computed on the resampled rows": ("analysis/theory/linear_router.py", "{**config, \"sampling\": \"none\", **places}", "{**config, **places}"),
    "images that are not square are resized with height and width swapped": ("data/inputs.py", ".resize((width, height), ", ".resize((height, width), "),
    "header of a CSV with a byte order mark has another first column": ("data/sheet.py", "encoding=\"utf-8-sig\"", "encoding=\"utf-8\""),
    "oversampling draws all rows anew, so some rows are lost": ("data/splits.py", "np.append(rows, rng.choice(rows, max(sizes) - len(rows)))", "rng.choice(rows, max(sizes))"),
    "other weights in the text encoder's folder go unnoticed": ("data/sets/table.py", "self._file(data_dir).read_bytes() + reads.encode()", "self._file(data_dir).read_bytes()"),
    "label equal to the number of classes is accepted in prepared arrays": ("data/sets/prepared.py", "labels.max() >= num_classes", "labels.max() > num_classes"),
    "code that comes with a model of the hub is run": ("data/text/pretrained.py", "\"trust_remote_code\": False", "\"trust_remote_code\": True"),
    "people cost nothing when prices are the coverage": ("experts/human.py", "*[1.0] * self.people", "*[0.0] * self.people"),
    "a prompt that ends in Answer: gets it a second time": ("experts/llm/scoring.py", "text = text if text.endswith(SUFFIX) else f\"{text}\\n{SUFFIX}\"", "text = f\"{text}\\n{SUFFIX}\""),
    "subjects in the outcomes table are those of other rows": ("experts/llm/asking.py", "[*(arrays.train_categories or ()), *(arrays.categories or ())]", "[*(arrays.categories or ()), *(arrays.train_categories or ())]"),
    "experts.recipe.ema is ignored": ("experts/classifier.py", "            ema=recipe.ema,\n", ""),
    "std in a sweep's table is that of the population": ("runs/cells.py", "statistics.stdev(losses)", "statistics.pstdev(losses)"),
    "a sweep with one invalid combination runs nothing": ("runs/sweep.py", "all(would_fail(cell, force) for cell in cells)", "any(would_fail(cell, force) for cell in cells)"),
    "WANDB_MODE overrides logger.mode=offline": ("runs/tracking.py", "os.environ.get(\"WANDB_MODE\", \"auto\") if self.mode == \"auto\" else self.mode", "os.environ.get(\"WANDB_MODE\", self.mode)"),
    "a delta of 0 or above 1 is not refused": ("commands/theory.py", "    \"delta\": ProperShare,\n", ""),
    "report: the experiment's own axes win over what the user typed": ("commands/report.py", "split_grid([*axes, *overrides])", "split_grid([*overrides, *axes])"),
    "a failed sweep ends with exit status 0": ("commands/hydra_command.py", "        sys.exit(f\"error: {one_line(error)}\")\n    except SystemExit as left:", "        print(f\"error: {one_line(error)}\", file=sys.stderr)\n    except SystemExit as left:"),
    "a router that inherits from another does not inherit its recipe": ("config/composing.py", "    for parent in content.get(\"defaults\", []):\n        otherwise = recipe_of(parent, otherwise)\n", ""),
    "patience with checkpoint=last is silently ignored": ("config/checking.py", "    if recipe.patience is not None and settings.checkpoint == \"last\":\n        raise ParameterError(\"recipe.patience\", \"needs checkpoint=best or checkpoint=best_loss\", recipe.patience)\n", ""),
    "routers with the same experts in another order are compared by number": ("serving/router.py", "if other.experts != self.experts:", "if {*other.experts} != {*self.experts}:"),
    "a saved router loses the rows that a guard at other prices needs": ("serving/saved.py", "\"network\": router.network.state_dict(), HELD_OUT: held_out}", "\"network\": router.network.state_dict()}"),
    "prices by row are left out of what the label is said to cost": ("methods/priced.py", "return evidence.errors + evidence.prices if evidence.prices.ndim == 2 else evidence.errors", "return evidence.errors"),
    "guard adds offsets to the threshold rule as if it were argmax": ("methods/one_vs_all.py", "return self.decision == \"posterior\" or self.rule == \"argmax\"", "return self.decision == \"posterior\" or self.rule != \"cascade\""),
    "collapse is reported although the oracle does the same": ("core/metrics.py", "return k + 1 if ratios[k] > 0.95 and abs(ratios[k] - oracle_ratios[k]) >= 0.10 - 1e-12 else None", "return k + 1 if ratios[k] > 0.95 else None"),
    "groups of rho tie the experts after those that are named": ("core/rho.py", "index = torch.tensor(group) - 1", "index = torch.tensor(group)"),
    "with language models, a run on other data is reused": ("routing/fingerprints.py", "f\"{data} {experts.identity()}\".encode()", "experts.identity().encode()"),
    "a user's loss that averages by itself is accepted": ("routing/module.py", "if losses.shape != costs.shape[:1]:", "if losses.ndim > 1:"),
    "ties in a grid go to the first trial": ("tuning/study.py", "sorted(reversed(trials) if grid else trials, key=", "sorted(trials, key="),
    "a class that a trusted module merely imports is trusted": ("utils/own_modules.py", "return isinstance(found, type) and found.__module__ == module", "return isinstance(found, type)"),
    "no checkpoint at the epoch where stop_after or patience ends training": ("learning/checkpoints.py", "last_epoch = trainer.should_stop or epoch == trainer.max_epochs", "last_epoch = epoch == trainer.max_epochs"),
    "calibration compares estimated errors with costs that include prices": ("training/score.py", "errors = test.split.costs - test.split.prices", "errors = test.split.costs"),
    "router.dropout of the mlp is ignored": ("networks/tabular.py", "nn.GELU(), nn.Dropout(dropout))", "nn.GELU())"),
    "a price for an expert that does not exist is ignored": ("costs/price_list.py", "        for name in prices:\n            if name not in names:\n                raise ParameterError(\"prices\", f\"unknown expert {name}; the experts are {experts}\")\n", ""),
    "l2d.fit changes the caller's random state": ("api/fit.py", "with ExitStack() as until, random_state_kept(), interruptible(), ended_by_signals():", "with ExitStack() as until, interruptible(), ended_by_signals():"),
    "two experts of the same name are accepted": ("data/given.py", "if len(names) != p or len({*names}) < p:", "if len(names) != p:"),
}  # fmt: skip


def first_failure(tree: Path, file: str = "") -> str | None:
    """The first test that fails in the copy, or None; those of the changed file's own come first, as the likeliest."""
    own = sorted(str(path.relative_to(tree)) for path in tree.glob(f"tests/**/test_{Path(file).stem}.py"))
    all_tests = ["-n", "2", "--dist", "loadfile", "tests"]
    for tests in ([*own] if own else None, ["-m", "not slow", *all_tests], ["-m", "slow", *all_tests]):
        if tests is not None and (failed := red(tree, tests)) is not None:
            return failed
    return None


def red(tree: Path, tests: list[str]) -> str | None:
    """The first of these that fails, or None."""
    options = ["-x", "-p", "no:cacheprovider", "--durations=0"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    result = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if result.returncode in (0, 5):  # 5: none of them is quick
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)
    return found.group(1) if found else f"exit status {result.returncode}"


def kept_rows() -> dict[str, str]:
    """The rows that docs/mutations.md has already."""
    file = ROOT / "docs" / "mutations.md"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}


def write_row(what: str, row: str) -> None:
    """Into docs/mutations.md, at once: a check that is stopped keeps what it found."""
    rows = kept_rows() | {what: row}
    head = "# The mutation check\n\nOne mistake at a time in a copy of the source, and the first test that turned red. Made by\n"
    head += "`python tests/mutations.py`, which runs the changed file's own tests, then the quick ones, then all.\n\n| mistake | in | caught by |\n|---|---|---|\n"
    text = head + "\n".join(rows[what] for what in MUTATIONS if what in rows) + "\n"
    (ROOT / "docs" / "mutations.md").write_text(text, encoding="utf-8")


def main() -> None:
    survivors = []
    words = sys.argv[1:]
    chosen = {what: change for what, change in MUTATIONS.items() if not words or any(word in what for word in words)}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(
            ".git", ".venv", "runs", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis", ".gpu"
        )
        shutil.copytree(ROOT, tree, symlinks=True, ignore=ignored)
        (tree / "docs" / "mutations.md").touch()  # other documents link to what this script writes
        if (failed := first_failure(tree)) is not None:
            sys.exit(f"the tests are red without any mutation: {failed}")
        for number, (what, (file, before, after)) in enumerate(chosen.items(), 1):
            source = tree / "src" / "l2d" / file
            original = source.read_text(encoding="utf-8")
            if original.count(before) != 1:
                sys.exit(f"{what}: {before!r} occurs {original.count(before)} times in {file}")
            source.write_text(original.replace(before, after), encoding="utf-8")
            failed = first_failure(tree, file)
            source.write_text(original, encoding="utf-8")
            if failed is not None and red(tree, [failed]) == failed:
                sys.exit(f"{what}: {failed} is red without it too")
            print(f"[{number}/{len(chosen)}] {what}: {failed or 'SURVIVED'}", flush=True)
            write_row(what, f"| {what} | `src/l2d/{file}` | {f'`{failed}`' if failed else '**survived**'} |")
            survivors += [] if failed else [what]
    if survivors:
        sys.exit(f"survived: {', '.join(survivors)}")


if __name__ == "__main__":
    main()
