"""A strategy's state on disk: one Zarr group, from which a run goes on with the same bits.

A sealed group (``storage.sealed``) whose JSON is ``tree`` (that of ``jobs.codec``, as text) and ``places`` (dtype,
shape, order and place of each array). Arrays of ``LARGE`` bytes and more are Zarr arrays ``a0``, ``a1`` … of their own,
the others lie one after the other in ``packed``: a split-merge of thousands of partitions has tens of thousands of
small arrays, and each would be a file or two.

Rows-first or columns-first order of memory is kept, since BLAS may round differently from another one. Arrays that are
neither (slices with gaps) come back rows-first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState
from partirvm.core.left_out import LeftOut
from partirvm.core.logistic import LogisticBlock, LogisticCross
from partirvm.core.posterior import JointPosterior, Posterior
from partirvm.core.priors import GammaDensity, Prior
from partirvm.core.residuals import LargestErrors, ResidualStatistics, Scores
from partirvm.core.scores import ClassScores, Ranking
from partirvm.core.statistics import CrossBlock, GramBlock, GramStatistics
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState, StopRule
from partirvm.errors import FormatError
from partirvm.jobs.codec import Codec, plain
from partirvm.kernels import KERNELS, NamedFunction, Several
from partirvm.kernels.bases import BASES, NamedBasis
from partirvm.kernels.design import Design
from partirvm.kernels.functions import require_no_code
from partirvm.likelihoods import LIKELIHOODS, gaussian_passes, laplace_passes
from partirvm.likelihoods.gaussian import Solve, Warm
from partirvm.likelihoods.laplace import Newton, Start
from partirvm.storage.sealed import read_sealed, write_sealed
from partirvm.strategies import instructions, problem
from partirvm.strategies.rounds import Phase, RoundsState
from partirvm.strategies.split_merge import Part, SplitMergeState
from partirvm.strategies.working_set import Best, WorkingSetState
from partirvm.types import Scaling

KIND = "partirvm-checkpoint"
FORMAT = 2

LARGE = 1 << 16
"""Bytes from which an array is one of its own in the group."""

STATES: tuple[type, ...] = (RoundsState, WorkingSetState, SplitMergeState, Best, Part, Warm, Phase)

INSTRUCTIONS: tuple[type, ...] = (
    gaussian_passes.GramPass,
    gaussian_passes.ResidualPass,
    gaussian_passes.LeaveOneOutPass,
    gaussian_passes.ScorePass,
    instructions.Gather,
    Solve,
    Newton,
    Start,
    laplace_passes.LogisticPass,
    laplace_passes.SurprisePass,
    laplace_passes.GainPass,
    laplace_passes.LogisticScorePass,
    instructions.LearnKernel,
    instructions.Save,
    instructions.Log,
    instructions.Finish,
    instructions.Record,
)

EVENTS: tuple[type, ...] = (
    instructions.Passed,
    instructions.Gathered,
    instructions.Solved,
    instructions.KernelLearned,
    instructions.Saved,
    instructions.Stop,
)

VALUES: tuple[type, ...] = (
    *map(type, LIKELIHOODS.values()),
    problem.Problem,
    problem.Lot,
    problem.Options,
    Design,
    Scaling,
    Prior,
    GammaDensity,
    HyperState,
    LaplaceState,
    LogisticBlock,
    LogisticCross,
    StopRule,
    Posterior,
    JointPosterior,
    GramStatistics,
    GramBlock,
    CrossBlock,
    ResidualStatistics,
    LargestErrors,
    LeftOut,
    Scores,
    ClassScores,
    Ranking,
    Termination,
)

CODEC = Codec((*STATES, *INSTRUCTIONS, *EVENTS, *VALUES, *cast(Any, KERNELS.values()), Several, *BASES))
"""Everything that a checkpoint may hold. A new field or class of a strategy's state belongs here."""


def save_checkpoint(value: Any, location: str) -> None:
    """Write a value (a state, or a dict of states, instructions and numbers) to a folder or URL with nothing there.

    Raises ``TypeError`` for what cannot be stored, ``ExistsError`` if something is there, ``StorageError`` where it
    cannot be written.
    """
    tree, arrays = CODEC.encode(value)
    places = _places(arrays)
    packed = b"".join(_bytes(a) for a, place in zip(arrays, places, strict=True) if place["packed"] is not None)
    own = {
        f"a{number}": array.T if place["order"] == "F" else array
        for number, (array, place) in enumerate(zip(arrays, places, strict=True))
        if place["packed"] is None
    }
    about = {"tree": json.dumps(tree, separators=(",", ":")), "places": places}
    write_sealed(location, KIND, FORMAT, about, {**own, "packed": np.frombuffer(packed, np.uint8)})


def load_checkpoint(location: str, *, allow_code: bool = False) -> Any:
    """The value that was saved.

    Raises ``MissingDataError`` if nothing is there or a part of it is missing or damaged, ``FormatError`` if it is
    something else or cannot be decoded, ``NewerFormatError`` if it is of a newer version, ``UsageError`` if it holds a
    named function (``kernels.functions``) and ``allow_code`` is false.
    """
    about, stored = read_sealed(location, KIND, FORMAT)
    packed = stored.pop("packed").tobytes()
    try:
        arrays = [
            _alone(stored[f"a{number}"], place) if place["packed"] is None else _unpacked(packed, place)
            for number, place in enumerate(about["places"])
        ]
        tree = json.loads(about["tree"])
    except (ValueError, KeyError) as error:
        raise FormatError(f"{location}: the checkpoint cannot be read: {error}") from error
    if not allow_code:
        require_no_code(list(_named(tree)), location)
    try:
        return CODEC.decode(tree, arrays)
    except FormatError as error:
        raise FormatError(f"{location}: the checkpoint cannot be read: {error}") from error


def _named(tree: Any) -> Iterator[Any]:
    """The fields of each named function in the JSON of a checkpoint."""
    if isinstance(tree, dict):
        if tree.get("class") in (NamedFunction.__name__, NamedBasis.__name__):
            yield tree["fields"]
        for each in tree.values():
            yield from _named(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from _named(each)


def _places(arrays: list[NDArray[Any]]) -> list[dict[str, Any]]:
    """What is said of each array; ``packed`` is where it begins among the small ones."""
    places: list[dict[str, Any]] = []
    end = 0
    for array in arrays:
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        small = array.nbytes < LARGE
        place = {"dtype": array.dtype.str, "shape": list(array.shape), "order": order, "packed": end if small else None}
        places.append(place)
        end += array.nbytes if small else 0
    return places


def _bytes(array: NDArray[Any]) -> bytes:
    return array.tobytes(order="A")


def _unpacked(packed: bytes, place: dict[str, Any]) -> NDArray[Any]:
    dtype, shape = plain(place["dtype"]), tuple(place["shape"])
    if not math.prod(shape):
        return np.zeros(shape, dtype, order=place["order"])
    flat = np.frombuffer(packed, dtype, math.prod(shape), place["packed"])
    return flat.copy().reshape(shape, order=place["order"])


def _alone(array: NDArray[Any], place: dict[str, Any]) -> NDArray[Any]:
    array = array.astype(plain(place["dtype"]), copy=False)  # Zarr has no order of bytes
    return array.T if place["order"] == "F" else array
