"""The driver carries out the instructions of a strategy and returns the answers.

Only the driver uses rows, clock, disk and cluster; only the strategy makes decisions. The passes of
one step run together, and several dense fits of one step run in parallel. Models and history are
written to the journal.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from partirvm.core.group_effects import fitted_effects
from partirvm.core.held_back import sampled_rows
from partirvm.core.sampling import Purpose, stream
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo
from partirvm.data.source import Source, Tile
from partirvm.execution import Executor
from partirvm.execution.kernel_store import KeepBlocks
from partirvm.fit.group_refits import leave_class_groups_out
from partirvm.fit.leave_groups_out import leave_groups_out, leave_groups_out_of_indicators
from partirvm.fit.local_residuals import fit_residuals
from partirvm.fit.residual_rows import Keep, ResidualReader
from partirvm.fit.stacked_trees import fit_trees
from partirvm.learning.sample import gathered
from partirvm.learning.search import learn_again
from partirvm.likelihoods.passes import ScorePass
from partirvm.model import AnyModel
from partirvm.model.feature_effects import marginals_of
from partirvm.model.sensitivity import feature_relevance, most_rows
from partirvm.model.summary import Assessment
from partirvm.process import on_threads, one_blas_thread
from partirvm.spec.entries import Entry as Entry
from partirvm.spec.entries import Record, Spent, line
from partirvm.spec.panel_pass import Pass
from partirvm.spec.problem import DenseFit, Options, PassFit, Problem, Solved
from partirvm.strategies import AnyStrategy
from partirvm.strategies.instructions import (
    FitEffects,
    FitResiduals,
    FitTrees,
    LearnKernel,
    LeaveClassGroupsOut,
    LeaveGroupsOut,
    LeaveIndicatorGroupsOut,
    Save,
    Steps,
    Stopped,
)
from partirvm.strategies.rounds import IncrementalRounds, early_state
from partirvm.types import Float

RESUMABLE = ("round", "part", "kernel", "final")
"""Kinds of history lines after which a checkpoint is taken; a run resumes after ``final`` only with
more rows."""


class Watcher:
    """Receives the progress of a fit. Every method does nothing by default and may be
    overridden."""

    def aborted(self) -> bool:
        """Called between tiles and between dense iterations, also during planning; True ends the
        fit of a job."""
        return False

    def on_learning(self, number: int, total: int, stage: str) -> None:
        """Called at each step of kernel learning, before the plan, with the number and a
        description of its stage."""

    def on_plan(self, plan: Any) -> None:
        """Called with the plan, before the first round."""

    def on_tiles(self, name: str, done: int, total: int) -> None:
        """Called when a pass has finished ``done`` of ``total`` tiles or, for "solve", parallel
        dense fits."""

    def on_step(self, info: StepInfo) -> None:
        """Called after each iteration of a dense fit."""

    def on_record(self, entry: dict[str, Any]) -> None:
        """Called with each line that is added to the history."""


@dataclass
class MemoryJournal:
    """The journal of a run, in memory: the last model, the history and the ``last`` state from
    which it can resume.

    ``keep_cells`` creates a folder for the rows of local residuals, or is None if there is no place
    for one.
    """

    model: AnyModel | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    last: Any = None
    keep_cells: Keep | None = None

    def save(self, model: AnyModel) -> None:
        """Keep this model."""
        self.model = model

    def record(self, entry: dict[str, Any]) -> None:
        """Keep this line of history; only the last diagnostics are kept."""
        if entry["diagnostics"]:
            self.history = [{**earlier, "diagnostics": []} for earlier in self.history]
        self.history.append(entry)

    def checkpoint(self, state: Any) -> None:
        """Keep this state."""
        self.last = state


@dataclass(frozen=True)
class Outcome:
    """The end of a run: its reason, the last record, the seconds including earlier attempts, and
    the last state.

    A job adds the model and the plan, each None if the job ended before it had one, and the whole
    history.
    """

    reason: Termination
    last: Record | None
    seconds: float
    state: Any = None
    model: AnyModel | None = None
    history: Sequence[Entry] = ()
    plan: Any = None


@dataclass
class Driver:
    """Runs one strategy on one source.

    ``interrupted`` is called between tiles and between dense iterations. When it returns a reason,
    the run ends with the last saved model; ``usable`` is True if there is one. If time is up before
    a model is saved, a small fit (``strategies.rounds``) makes one. ``elapsed`` is the time of
    earlier attempts in seconds. ``for_readers`` returns additional fields of a line of history for
    its readers, given the line and the fit. ``assessed`` returns what is known of the quality of a
    model, given the model, the request to save it and random rows.
    """

    learn_again = staticmethod(learn_again)

    executor: Executor
    source: Source
    held_out: Source | None = None
    watcher: Watcher = field(default_factory=Watcher)
    interrupted: Callable[[], Termination | None] = lambda: None
    usable: bool = False
    elapsed: float = 0.0
    keep_blocks: KeepBlocks | None = None
    for_readers: Callable[[Entry, Any], Entry] = lambda entry, fit: {}
    assessed: Callable[[AnyModel, Save, Tile], Assessment | None] = lambda *facts: None

    def run(
        self,
        strategy: AnyStrategy,
        problem: Problem,
        options: Options,
        journal: MemoryJournal,
        resume: Any = None,
    ) -> Outcome:
        """Run the strategy to its end; afterwards, the journal holds the model.

        Args:
            strategy: the strategy
            problem: the problem to which a model is fitted
            options: options of the strategy
            journal: receives the models and the history
            resume: the state from which the strategy starts, or None for its first state
        """
        self._journal = journal
        self._began = time.perf_counter() - self.elapsed
        self._spent = Spent()
        self._likelihood = problem.likelihood
        self._last: Record | None = None
        with one_blas_thread(), on_threads(self.executor.threads):
            outcome = self._run(
                strategy, strategy.start(problem, options) if resume is None else resume
            )
            if outcome.reason is not Termination.TIME or self.usable:
                return outcome
            self.interrupted = lambda: None
            last = self._run(
                IncrementalRounds(), early_state(outcome.state.problem, outcome.state.options)
            )
            return replace(last, reason=Termination.TIME)

    def _run(self, strategy: AnyStrategy, state: Any) -> Outcome:
        reason: Termination | None = None
        try:
            while reason is None:
                state, resumable = self._step(strategy.step(state))
                if resumable:
                    self._journal.checkpoint(state)
                reason = state.end
        except Stopped as stopped:
            reason = stopped.reason
        return Outcome(reason, self._last, time.perf_counter() - self._began, state)

    def _step(self, step: Steps[Any]) -> tuple[Any, bool]:
        """Run a step; return the next state, and whether a line was stored from which the run can
        resume."""
        resumable = False
        answers = cast(Any, None)
        send: Callable[[Any], Any] = step.send
        while True:
            try:
                instructions = send(answers)
            except StopIteration as end:
                return end.value, resumable
            # free the statistics, which may be as large as the fit made from them, before the next
            # solve
            answers = None
            if isinstance(instructions[0], Save):
                resumable = instructions[0].record.kind in RESUMABLE
            try:
                send, answers = step.send, self._perform(instructions)
            except Stopped as stopped:
                send = step.throw
                answers = stopped

    def _perform(self, instructions: Sequence[Any]) -> tuple[Any, ...]:
        """Carry out instructions that are all of one kind, or all lines of history, and return the
        answers."""
        if not isinstance(instructions[0], Save):
            self._check()
        match instructions[0]:
            case Save():
                self._write(instructions)
                return (None,) * len(instructions)
            case Pass():
                return tuple(self._passes([self._as_saved(one) for one in instructions]))
            case PassFit():
                return self._by_passes(instructions)
            case DenseFit() if len(instructions) > 1:
                return tuple(
                    self.executor.solve(instructions, self._telling(self.watcher.on_tiles, "solve"))
                )
            case DenseFit() as solve:
                return (Solved(*solve.run(self._telling(self.watcher.on_step))),)
            case LeaveGroupsOut() | LeaveClassGroupsOut() | FitEffects() as request:
                return (self._of_groups(request),)
            case FitResiduals() as request:
                return (fit_residuals(request, self._reader("neighbours")),)
            case FitTrees() as request:
                return (fit_trees(request, self._reader("trees")),)
            case LearnKernel() as request:
                with gathered(
                    self.source, request.rows, self.executor, self._on_passes, self._spent
                ) as sample:
                    return (self.learn_again(sample, request),)
            case _:  # Gather
                row_numbers = [gather.rows for gather in instructions]
                tiles = map(self.source.gather, row_numbers)
                pairs = zip(row_numbers, tiles, strict=True)
                return tuple((rows[tile.present], tile.X[tile.present]) for rows, tile in pairs)

    def _of_groups(self, request: Any) -> Any:
        """Return the answer to a request about groups of rows."""
        match request:
            case LeaveIndicatorGroupsOut():
                return leave_groups_out_of_indicators(request, self._reader("groups"))
            case LeaveGroupsOut():
                return leave_groups_out(request, self._reader("groups"))
            case LeaveClassGroupsOut():
                tell = self._telling(lambda *progress: self.watcher.on_tiles("groups", 0, 0))
                return leave_class_groups_out(
                    request, self.source, self.executor, tell, self._spent
                )
            case _:
                left_out = request.left_out
                groups = self._reader("groups").tile(left_out.rows).groups
                return None if groups is None else fitted_effects(left_out, groups)

    def _reader(self, name: str) -> ResidualReader:
        """Return a reader of rows, whose progress is reported by this name."""
        tell = self._telling(lambda *progress: self.watcher.on_tiles(name, 0, 0))
        keep = self._journal.keep_cells
        return ResidualReader(self.source, self.executor, tell, self._spent, keep)

    def _write(self, instructions: Sequence[Save]) -> None:
        """Save the models and write the lines of history."""
        for number, save in enumerate(instructions):
            if save.model:
                # the model chooses its own origin, as when it is loaded, so that both make
                # bit-identical predictions
                design = replace(save.design, origin=None)
                model: Any = self._likelihood.model(
                    design, save.fit, self.source.columns, save.moderate
                )
                if save.residuals is not None:
                    model = replace(
                        model, residuals=replace(save.residuals, n_rows=self.source.n_rows)
                    )
                if save.trees is not None:
                    model = replace(model, trees=save.trees.share)
                if save.known is not None:
                    model = replace(model, known=save.known.of_rows(self.source.n_rows))
                model = model.with_reach_of(self._relevance_rows)
                model = replace(model, marginals=marginals_of(model, self._relevance_rows))
                model = replace(model, relevance=feature_relevance(model, self._relevance_rows))
                assessment = self.assessed(model, save, self._sample)
                model = replace(model, assessment=assessment)
                self._journal.save(model)
                self.usable = True
            entry = line(
                save.record,
                self._spent.share(len(instructions) - number),
                self._began,
                saved=save.model,
            )
            if save.model and model.assessment is not None:
                entry["assessment"] = asdict(model.assessment)
            entry |= self.for_readers(entry, save.fit)
            self._journal.record(entry)
            self.watcher.on_record(entry)
            self._last = save.record

    @cached_property
    def _sample(self) -> Tile:
        """Random rows of positive weight: the same in every run of a fit."""
        rows = sampled_rows(
            self.source.n_rows,
            None,
            most_rows(self.source.n_features),
            shuffled=self.source.shuffled,
        )
        tile = self.source.gather(np.arange(self.source.n_rows) if rows is None else rows)
        # as new rows have them, without the places of groups
        tile = replace(tile, X=tile.X[:, : self.source.n_features])
        return tile.take(tile.present, tile.start)

    @cached_property
    def _relevance_rows(self) -> Float:
        """Random rows in random order, for the relevance of features and the reach."""
        X = self._sample.X
        return np.asarray(X[stream(0, Purpose.RELEVANCE_ROWS).permutation(len(X))])

    def _as_saved(self, one: Pass) -> Pass:
        """Return a pass; one for scores is of the model as it would be saved."""
        if not isinstance(one, ScorePass):
            return one
        return replace(one, stated=one.stated.with_reach_of(self._relevance_rows))

    def _passes(self, passes: Sequence[Pass]) -> list[Any]:
        source = self.held_out if passes[0].held_out else self.source
        assert source is not None
        rows = sum(source.n_rows if one.rows is None else len(one.rows) for one in passes)
        tell = self._telling(self.watcher.on_tiles, passes[0].name)
        began = time.perf_counter()
        keeping = None
        if (
            self.keep_blocks is not None and source is self.source
        ):  # held-out rows are read by one pass per round
            keeping = self.keep_blocks(
                max(sum(design.n_columns for design in one.designs) for one in passes)
            )
        statistics = self.executor.run(passes, source, tell, keeping)
        self._spent.add(began, len(passes), rows)
        return statistics

    def _on_passes(self, passes: Sequence[Any], done: int, total: int) -> None:
        """Report passes over the rows gathered for kernel learning."""
        if passes and total:
            self.watcher.on_tiles("kernel", done, total)
        self._check()

    def _by_passes(self, tasks: Sequence[PassFit]) -> tuple[Solved, ...]:
        """Run several fits in parallel, each of which needs one pass per step. Their next passes
        share one reading."""
        searches = list(tasks)
        while active := [k for k, search in enumerate(searches) if search.reason is None]:
            for k, block in zip(
                active, self._passes([searches[k].next_pass for k in active]), strict=True
            ):
                searches[k] = searches[k].advance(block, self._check)
                self._telling(self.watcher.on_step)(searches[k].info)
        return tuple(
            Solved(search.fit, search.reason) for search in searches if search.reason is not None
        )

    def _telling(self, method: Callable[..., None], *first: Any) -> Callable[..., None]:
        """Return a function that calls a watcher method, and raises ``Stopped`` if the run is
        interrupted."""

        def tell(*rest: Any) -> None:
            method(*first, *rest)
            self._check()

        return tell

    def _check(self) -> None:
        if (reason := self.interrupted()) is not None:
            raise Stopped(reason)
