"""Starting points of a kernel search, found from the evidence of single features and feature pairs.

With many features, short widths for all of them make all rows nearly uncorrelated: no slope points
to the few features that matter. A function of two features that vanishes on average over either of
them, such as a product of two waves, cannot be detected from any single feature either. The tied
evidence of a kernel on one or two features takes a millisecond to compute and detects both cases.
In the other features, the kernel is wide and nearly constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product

import numpy as np

from partirvm.core.sampling import Purpose, stream
from partirvm.kernels import Kernel
from partirvm.learning.exact_process import ProcessRows, tied_gain
from partirvm.types import Float

GAMMAS = (0.5, 4.0, 32.0)
"""Gammas tried for a single feature, from a trend to a wave of eight radians per standard
deviation."""

PAIR_GAMMAS = (0.5, 2.0, 8.0)
"""Gammas tried for each feature of a pair: the few centres cannot resolve shorter waves in two
features."""

JITTER = 0.3
"""Standard deviation of initial log parameters around a start, since equal features may otherwise
remain equal."""

WIDE = 0.01
"""Gamma of the other features, relative to gamma="scale"."""

NATS = 2.0
"""Minimum gain in evidence of a feature or a pair, in nats for a search with ``SEARCH_ROWS``
rows."""

SEARCH_ROWS = 400
"""Number of search rows to which ``NATS`` refers."""

PAIRS = 78
"""Maximum number of pairs: all pairs of 13 features."""

PAIR_ROWS = 1000
"""Maximum number of rows used to screen pairs, since there are many pairs."""


@dataclass
class Screening:
    """The gains of kernels that depend on one or two features.

    Attributes:
        rows: the rows whose tied evidence is computed.
        kernel: the kernel whose log parameters (p,) are screened, at gamma="scale".
        wide: (p,), its log parameters with a large width for every feature.
        of_wide: the gain of ``wide`` over the leading columns, in nats per row.
        singles: the best gain of each parameter alone beyond ``of_wide``, with its gamma.
    """

    rows: ProcessRows
    kernel: Kernel
    wide: Float = field(init=False)
    of_wide: float = field(init=False)
    singles: dict[int, tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        logs = self.kernel.logs
        self.wide = np.where(np.isfinite(logs), logs + np.log(WIDE), -np.inf)
        self.of_wide = tied_gain(self.rows, self.kernel.with_logs(self.wide))
        self.singles = {
            int(j): self._single(int(j)) for j in np.flatnonzero(np.isfinite(self.wide))
        }

    @property
    def least(self) -> float:
        """The minimum gain in nats per row."""
        return NATS / min(len(self.rows.X), SEARCH_ROWS)

    def gain(self, parameters: Sequence[int], gammas: Sequence[float]) -> float:
        """Return the gain of ``gammas`` for these parameters over large widths, in nats per row."""
        self.rows.sample.check_interrupted()
        logs = self.wide.copy()
        logs[list(parameters)] = np.log(gammas)
        return tied_gain(self.rows, self.kernel.with_logs(logs)) - self.of_wide

    def _single(self, j: int) -> tuple[float, float]:
        """Return the best gain from changing a single parameter, and its gamma."""
        return max((self.gain([j], [gamma]), gamma) for gamma in GAMMAS)

    def of_singles(self) -> Float:
        """Return log parameters (p,): the best gamma of each parameter that gains alone, and large
        widths elsewhere."""
        start = self.wide.copy()
        for j, (gain, gamma) in self.singles.items():
            if gain > self.least:
                start[j] = np.log(gamma)
        return start

    def of_pairs(self) -> Float | None:
        """Return log parameters (p,) with the best gammas of pairs that gain more together than
        alone; None if there are no such pairs.

        The pairs are visited in order of decreasing gain; the first pair that contains a parameter
        determines its gamma.
        """
        together: list[tuple[float, tuple[int, int], tuple[float, float]]] = []
        for pair in self._pairs():
            alone = sum(max(self.singles[j][0], 0.0) for j in pair)
            if max(self.gain(pair, (gamma, gamma)) for gamma in PAIR_GAMMAS) > alone + self.least:
                gain, gammas = max(
                    (self.gain(pair, each), each) for each in product(PAIR_GAMMAS, PAIR_GAMMAS)
                )
                together.append((gain - alone, pair, gammas))
        if not together:
            return None
        start = self.of_singles()
        decided: set[int] = set()
        for _, pair, gammas in sorted(together, reverse=True):
            for j, gamma in zip(pair, gammas, strict=True):
                if j not in decided:
                    start[j] = np.log(gamma)
                    decided.add(j)
        return start

    def _pairs(self) -> list[tuple[int, int]]:
        """Return the pairs to try: all pairs of the parameters with the largest gains, at most
        ``PAIRS``."""
        order = sorted(self.singles, key=lambda j: -self.singles[j][0])
        while len(order) * (len(order) - 1) > 2 * PAIRS:
            order.pop()
        return list(combinations(sorted(order), 2))


def jittered(logs: Float, scales: Sequence[float], seed: int) -> list[Float]:
    """Return starts (p,): the log parameters at several inverse widths, with a jitter if there are
    several parameters."""
    rng = stream(seed, Purpose.PROCESS_STARTS)
    jitter = JITTER if len(logs) > 1 else 0.0
    return [logs + 2 * np.log(scale) + jitter * rng.normal(size=len(logs)) for scale in scales]


def screened(rows: ProcessRows, kernel: Kernel) -> list[Float]:
    """Return starts (p,) for a search over the kernel's log parameters, from single features and
    from pairs."""
    of_singles = Screening(rows, kernel).of_singles()
    of_pairs = Screening(_thinned(rows), kernel).of_pairs()
    return [of_singles, *([] if of_pairs is None else [of_pairs])]


def _thinned(rows: ProcessRows) -> ProcessRows:
    """Return every k-th row, at most ``PAIR_ROWS``."""
    step = slice(None, None, -(-len(rows.X) // PAIR_ROWS))
    return replace(
        rows, X=rows.X[step], t=rows.t[step], inverse=rows.inverse[step], columns=rows.columns[step]
    )
