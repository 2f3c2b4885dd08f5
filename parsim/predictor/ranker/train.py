"""The one training loop: every objective, every tuning, resumable to the step."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from parsim.errors import UserError
from parsim.interrupt import deferred_interrupt
from parsim.predictor.corpora.corpus import Labelled
from parsim.predictor.ranker.encoder import Encoder
from parsim.predictor.ranker.model import MICRO_BATCH, Ranker
from parsim.predictor.ranker.objective import CUTS, batch_loss, margin_loss
from parsim.predictor.ranker.pairs import draw_pairs, relative_gap
from parsim.predictor.ranker.recipe import Recipe
from parsim.predictor.ranker.state import History, load_state, save_state
from parsim.predictor.ranker.tokens import by_length
from parsim.progress import Bar, progress_bar
from parsim.stats import tau_b

SAVE_EVERY_S = 60.0
"""Seconds of training after which the state is written, so that an interrupted run loses no more."""


def train(
    training: Labelled,
    validation: Labelled,
    encoder: Encoder,
    recipe: Recipe,
    *,
    state_file: Path | None = None,
    progress: bool = False,
) -> tuple[Ranker, History]:
    """Fit a ranker and return it with the weights of the epoch that ranked `validation` best.

    Full tuning trains with the encoder's own dropout, LoRA and a frozen encoder without any.

    The order of prompts, dropout and the drawn pairs depend on `recipe.seed` and the step alone, so a run
    that was interrupted and resumed from `state_file` ends with the weights of one that was not.

    Args:
        training: prompts that give gradients.
        validation: prompts that choose the epoch (Kendall's tau_b over all of them, no delta filter).
        encoder: as loaded; its weights are changed by full tuning.
        recipe: every other choice.
        state_file: where to keep the state while training; continued if it exists, removed by the caller at
            the end.
        progress: show a progress bar on stderr.

    Raises:
        UserError: the lengths are constant, no two differ by `recipe.delta` where pairs are ranked, the loss stops
            being a number, or `state_file` is of another recipe or of other data.
    """
    if np.ptp(training.lengths) == 0:
        raise UserError(
            f"all {len(training)} training lengths are {training.lengths[0]:g}: there is nothing to rank"
        )
    widest = float(relative_gap(training.lengths.max(), training.lengths.min()))
    if recipe.objective in ("pairwise", "mixed") and widest < recipe.delta:
        raise UserError(
            f"delta={recipe.delta:g}: no two training lengths differ by so much (at most {widest:.4g}), so that there"
            " is no pair to learn from; lower it"
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ranker = Ranker(encoder, recipe).use(device)
    loop = _Loop(ranker, encoder, training, validation, state_file)
    console = Console(stderr=True)
    if progress and loop.step:
        console.print(f"an unfinished run is continued after step {loop.step:,} of {loop.steps:,}")
    with progress_bar(console, show=progress, transient=False) as bar:
        bar.begin("training", loop.steps, loop.step)
        loop.run(bar)
    return ranker, loop.history


class _Loop:
    """State of one run; `run` takes it from where it stands to the end."""

    def __init__(
        self,
        ranker: Ranker,
        encoder: Encoder,
        training: Labelled,
        validation: Labelled,
        state_file: Path | None,
    ) -> None:
        recipe = ranker.recipe
        self.ranker, self.recipe, self.state_file = ranker, recipe, state_file
        self.encoder = encoder.sha256
        self.data = f"{training.digest()} {validation.digest()}"
        self.tokens = ranker.tokenize(training.prompts)
        self.validation_tokens = ranker.tokenize(validation.prompts)
        self.validation = validation
        self.censored = torch.from_numpy(training.censored)
        self.log_lengths = torch.from_numpy(np.log(training.lengths)).float()
        raw = self.log_lengths if recipe.target == "log" else torch.from_numpy(training.lengths).float()
        target = (float(raw.mean()), float(raw.std()) or 1.0)
        self.targets = (raw - target[0]) / target[1]
        shares = torch.arange(1, CUTS + 1) / (CUTS + 1)
        self.cuts = torch.quantile(self.log_lengths, shares)
        self.pairs = (
            draw_pairs(
                training.lengths,
                training.censored,
                partners=recipe.partners,
                delta=recipe.delta,
                seed=recipe.seed,
            )
            if recipe.pairs == "offline"
            else None
        )
        self.units = len(self.tokens) if self.pairs is None else len(self.pairs)
        self.per_epoch = max(1, self.units // recipe.batch_size)
        self.steps = self.per_epoch * recipe.epochs
        self.frozen = self._frozen_features() if recipe.tuning == "frozen" else None
        self.trainable = [value for value in ranker.parameters() if value.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trainable, lr=recipe.rate, weight_decay=recipe.weight_decay, fused=True
        )
        fp16 = ranker.precision == torch.float16
        self.scaler = torch.amp.GradScaler(ranker.device.type, enabled=fp16)
        self.step = 0
        self.loss_sum = 0.0
        self.history = History(target=target)
        self.best: dict[str, torch.Tensor] = {}
        self.best_tau = -math.inf
        self._resume()

    def run(self, bar: Bar) -> None:
        """Train until the last epoch or until `patience` epochs brought nothing, then take the best weights."""
        wall, cpu, saved = time.perf_counter(), time.process_time(), time.perf_counter()
        wall0, cpu0 = self.history.wall_s, self.history.cpu_s

        def save() -> None:
            nonlocal saved
            self.history.wall_s = wall0 + time.perf_counter() - wall
            self.history.cpu_s = cpu0 + time.process_time() - cpu
            self._save()
            saved = time.perf_counter()

        with deferred_interrupt() as interrupted:
            while self.step < self.steps and not self._out_of_patience():
                epoch, start = divmod(self.step, self.per_epoch)
                if start == 0:
                    self.loss_sum = 0.0
                for batch in self._batches(epoch)[start:]:
                    self._one_step(batch, epoch)
                    bar.advance(what=self._message(epoch))
                    inside = self.step % self.per_epoch > 0  # after an epoch's last step it is judged first
                    if inside and (interrupted() or time.perf_counter() - saved > SAVE_EVERY_S):
                        save()
                    if inside and interrupted():
                        raise KeyboardInterrupt
                self._end_epoch(epoch)
                save()
                if interrupted():
                    raise KeyboardInterrupt
        self.ranker.load_state_dict(self.best, strict=False)
        self.ranker.eval()

    def _one_step(self, rows: npt.NDArray[np.int64], epoch: int) -> None:
        recipe = self.recipe
        torch.manual_seed(recipe.seed * 1_000_003 + self.step)
        self.ranker.train(recipe.tuning == "full")
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.rate * self._schedule()
        loss = self._pair_loss(rows) if self.pairs is not None else self._batch_loss(rows)
        if not torch.isfinite(loss):
            if self.state_file is not None:
                self.state_file.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # there was something else in it
                    self.state_file.parent.rmdir()
            raise UserError(
                f"loss is {loss.item()} at step {self.step + 1} (epoch {epoch + 1}), learning rate"
                f" {recipe.rate:g}: lower it, or compute in 32 bits (precision fp32); nothing was written"
            )
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.trainable, recipe.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.loss_sum += float(loss.detach())
        self.step += 1

    def _batch_loss(self, rows: npt.NDArray[np.int64]) -> Any:
        some, device = torch.from_numpy(rows), self.ranker.device
        return batch_loss(
            self.recipe.objective,
            self._scores(rows),
            self.log_lengths[some].to(device),
            self.censored[some].to(device),
            targets=self.targets[some].to(device),
            cuts=self.cuts.to(device),
            delta=self.recipe.delta,
            margin=self.recipe.margin,
        )

    def _pair_loss(self, numbers: npt.NDArray[np.int64]) -> Any:
        assert self.pairs is not None
        pairs = self.pairs[numbers]
        rows, places = np.unique(pairs, return_inverse=True)
        scores = self._scores(rows)[torch.from_numpy(places.reshape(pairs.shape)).to(self.ranker.device)]
        return margin_loss(scores[:, 0], scores[:, 1], self.recipe.margin)

    def _scores(self, rows: npt.NDArray[np.int64]) -> torch.Tensor:
        if self.frozen is not None:
            scores: torch.Tensor = self.ranker(self.frozen[torch.from_numpy(rows).to(self.ranker.device)])
            return scores
        result: torch.Tensor = self.ranker(self.ranker.features([self.tokens[row] for row in rows]))
        return result

    def _batches(self, epoch: int) -> list[npt.NDArray[np.int64]]:
        order = np.random.default_rng((self.recipe.seed, epoch)).permutation(self.units)
        return np.array_split(order, self.per_epoch)

    def _schedule(self) -> float:
        """Linear rise over the warm-up, then linear fall to zero at the last step."""
        rise = max(1, round(self.steps * self.recipe.warmup))
        if self.step < rise:
            return (self.step + 1) / rise
        return (self.steps - self.step) / max(1, self.steps - rise)

    @torch.inference_mode()
    def _frozen_features(self) -> torch.Tensor:
        """Pooled states of all training prompts, computed once; sets the ranker's mean and spread."""
        self.ranker.eval()
        features = torch.empty(len(self.tokens), self.ranker.head.in_features, device=self.ranker.device)
        for group in by_length(self.tokens, MICRO_BATCH * 4):
            features[torch.from_numpy(group)] = self.ranker.features([self.tokens[row] for row in group])
        spread = features.std(0)
        self.ranker.mean.copy_(features.mean(0))
        self.ranker.spread.copy_(torch.where(spread > 1e-5, spread, torch.ones_like(spread)))
        return features.clone()

    def _end_epoch(self, epoch: int) -> None:
        scores = self.ranker.score_rows(self.validation_tokens)
        tau = tau_b(scores, self.validation.lengths)
        self.history.epochs.append({"loss": self.loss_sum / self.per_epoch, "validation_tau_b": tau})
        if not tau <= self.best_tau:
            self.best_tau = tau if math.isfinite(tau) else -math.inf
            self.history.best_epoch = epoch + 1
            self.best = self.ranker.trained_state()

    def _out_of_patience(self) -> bool:
        return self.step % self.per_epoch == 0 and (
            len(self.history.epochs) - self.history.best_epoch >= self.recipe.patience
        )

    def _message(self, epoch: int) -> str:
        tau = f", validation tau {self.best_tau:.3f}" if math.isfinite(self.best_tau) else ""
        done = (self.step - 1) % self.per_epoch + 1
        return f"epoch {epoch + 1} of {self.recipe.epochs}, loss {self.loss_sum / done:.3f}{tau}"

    def _fingerprint(self) -> str:
        return f"{self.recipe.model_dump_json()} {self.encoder} {self.data}"

    def _save(self) -> None:
        if self.state_file is None:
            return
        state = {
            "fingerprint": self._fingerprint(),
            "step": self.step,
            "loss_sum": self.loss_sum,
            "weights": self.ranker.trained_state(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "best": self.best,
            "best_tau": self.best_tau,
            "history": vars(self.history),
        }
        save_state(self.state_file, state)

    def _resume(self) -> None:
        if self.state_file is None or not self.state_file.exists():
            return
        state = load_state(self.state_file, self._fingerprint(), self.ranker.device)
        self.ranker.load_state_dict(state["weights"], strict=False)
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.step, self.loss_sum = state["step"], state["loss_sum"]
        self.best, self.best_tau = state["best"], state["best_tau"]
        self.history = History(**state["history"])
