"""The design matrix Φ (N, M), given by its centres and never held whole.

Column m is k(·, centre m), or the constant 1 for the bias. A ``Design`` maps raw inputs to rows of Φ: it standardises
them as the fit does, then evaluates the kernel. Its ``basis`` names everything but the centres.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.base import Kernel, PreparedKernel
from partirvm.types import Scaling

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Design:
    """M columns: ``bias`` first if it is there, then one kernel column per centre.

    ``centres`` (m, d) are rows of the data in raw units and ``labels`` (m,) int64 their row numbers.
    """

    kernel: Kernel
    scaling: Scaling
    centres: Float
    labels: Int
    bias: bool

    @property
    def n_columns(self) -> int:
        """M, the bias counted."""
        return len(self.centres) + self.bias

    @cached_property
    def basis(self) -> str:
        """Hash of kernel parameters and input scaling: columns of equal basis and label are equal functions."""
        shift, scale = self.scaling.x_shift, self.scaling.x_scale
        text = json.dumps([self.kernel.spec(), shift.tolist(), scale.tolist()], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def _prepared(self) -> PreparedKernel:
        return self.kernel.prepare(self.scaling.inputs(self.centres))

    def block(self, X: Float, out: Float | None = None) -> Float:
        """Φ of raw inputs X (n, d): an array (n, M), the first n rows of ``out`` (≥ n, M) if that is given."""
        block = np.empty((len(X), self.n_columns)) if out is None else out[: len(X)]
        block[:, : int(self.bias)] = 1.0
        if len(self.centres):
            self._prepared(self.scaling.inputs(X), block[:, int(self.bias) :])
        return block

    def take(self, centres: Int, *, bias: bool | None = None) -> Design:
        """The design of some of the centres, by position; keeps the bias unless told otherwise."""
        keep = self.bias if bias is None else bias
        return replace(self, centres=self.centres[centres], labels=self.labels[centres], bias=keep)

    def join(self, other: Design) -> Design:
        """The centres of this design, then those of ``other``, and the bias if either has it."""
        return replace(
            self,
            bias=self.bias or other.bias,
            centres=np.concatenate([self.centres, other.centres]),
            labels=np.concatenate([self.labels, other.labels]),
        )

    def with_centres(self, centres: Float, labels: Int, *, bias: bool = False) -> Design:
        """Other centres (m, d) with their labels, the same kernel and scaling."""
        return replace(self, centres=centres, labels=labels, bias=bias)
