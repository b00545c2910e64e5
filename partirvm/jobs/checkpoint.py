"""A strategy's state on disk: one Zarr group, from which a run goes on with the same bits.

Attributes: ``kind``, ``format``, ``tree`` (the JSON of ``jobs.codec``, as text), ``arrays`` (dtype, shape, order and
place of each array) and ``digest`` of these. Arrays of ``LARGE`` bytes and more are Zarr arrays ``a0``, ``a1`` … of
their own, the others lie one after the other in ``packed``: a split-merge of thousands of partitions has tens of
thousands of small arrays, and each would be a file or two. Every chunk carries a checksum. The attributes are written
last: a group without them is no checkpoint.

Rows-first or columns-first order of memory is kept, since BLAS may round differently from another one. Arrays that are
neither (slices with gaps) come back rows-first.
"""

from __future__ import annotations

import hashlib
import json
import math
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
from partirvm.errors import ExistsError, FormatError, MissingDataError, NewerFormatError
from partirvm.jobs.codec import Codec, plain
from partirvm.kernels import KERNELS, Several
from partirvm.kernels.bases import BASES
from partirvm.kernels.design import Design
from partirvm.storage import storing
from partirvm.strategies import instructions, passes, problem
from partirvm.strategies.regressing import Warm
from partirvm.strategies.rounds import Phase, RoundsState
from partirvm.strategies.split_merge import Part, SplitMergeState
from partirvm.strategies.working_set import Best, WorkingSetState
from partirvm.types import Scaling

KIND = "partirvm-checkpoint"
FORMAT = 1

LARGE = 1 << 16
"""Bytes from which an array is one of its own in the group."""

CHUNK = 1 << 23
"""Bytes of a chunk."""

STATES: tuple[type, ...] = (RoundsState, WorkingSetState, SplitMergeState, Best, Part, Warm, Phase)

INSTRUCTIONS: tuple[type, ...] = (
    passes.GramPass,
    passes.ResidualPass,
    passes.LeaveOneOutPass,
    passes.ScorePass,
    instructions.Gather,
    instructions.Solve,
    instructions.Newton,
    instructions.Start,
    passes.LogisticPass,
    passes.SurprisePass,
    passes.GainPass,
    passes.LogisticScorePass,
    passes.BendPass,
    passes.SlopePass,
    instructions.Save,
    instructions.Log,
    instructions.Finish,
    instructions.Record,
)

EVENTS: tuple[type, ...] = (
    instructions.Passed,
    instructions.Gathered,
    instructions.Solved,
    instructions.Saved,
    instructions.Stop,
)

VALUES: tuple[type, ...] = (
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

RENAMED = {"Best": {"rmse": "error"}, "HyperState": {"posterior": "found"}}
"""Fields that had another name in older checkpoints of this format."""

CODEC = Codec((*STATES, *INSTRUCTIONS, *EVENTS, *VALUES, *cast(Any, KERNELS.values()), Several, *BASES), RENAMED)
"""Everything that a checkpoint may hold. A new field or class of a strategy's state belongs here."""


def save_checkpoint(value: Any, location: str) -> None:
    """Write a value (a state, or a dict of states, instructions and numbers) to a folder or URL with nothing there.

    Raises ``TypeError`` for what cannot be stored, ``ExistsError`` if something is there, ``StorageError`` where it
    cannot be written.
    """
    import zarr

    tree, arrays = CODEC.encode(value)
    text = json.dumps(tree, separators=(",", ":"))
    places = _places(arrays)
    packed = b"".join(_bytes(a) for a, place in zip(arrays, places, strict=True) if place["packed"] is not None)
    with storing(location):
        try:
            group = zarr.open_group(location, mode="w-", zarr_format=3)
        except FileExistsError as error:
            raise ExistsError(f"{location}: there is something here already, a checkpoint is never replaced") from error
        for number, (array, place) in enumerate(zip(arrays, places, strict=True)):
            if place["packed"] is None:
                _write(group, f"a{number}", array.T if place["order"] == "F" else array)
        _write(group, "packed", np.frombuffer(packed, np.uint8))
        about = {"kind": KIND, "format": FORMAT, "tree": text, "arrays": places}
        group.update_attributes({**about, "digest": _digest(about)})


def load_checkpoint(location: str) -> Any:
    """The value that was saved.

    Raises ``MissingDataError`` if nothing is there or a part of it is missing or damaged, ``FormatError`` if it is
    something else or cannot be decoded, ``NewerFormatError`` if it is of a newer version.
    """
    import zarr

    try:
        group = zarr.open_group(location, mode="r")
        about: dict[str, Any] = dict(group.attrs)
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise MissingDataError(f"{location}: no checkpoint here, or a damaged one") from error
    if about.get("kind") != KIND:
        raise FormatError(f"{location}: this is not a partirvm checkpoint (kind {about.get('kind')!r})")
    if about["format"] > FORMAT:
        raise NewerFormatError(
            f"{location}: the checkpoint has format {about['format']}, this version reads up to {FORMAT}: "
            "upgrade partirvm"
        )
    if about.pop("digest", None) != _digest(about):
        raise MissingDataError(f"{location}: the attributes of the checkpoint are damaged")
    packed = _read(group, "packed", location).tobytes()
    arrays = [
        _read(group, f"a{number}", location, place) if place["packed"] is None else _unpacked(packed, place)
        for number, place in enumerate(about["arrays"])
    ]
    try:
        return CODEC.decode(json.loads(about["tree"]), arrays)
    except ValueError as error:
        raise FormatError(f"{location}: the checkpoint cannot be read: {error}") from error


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


def _write(group: Any, name: str, array: NDArray[Any]) -> None:
    from zarr.codecs import Crc32cCodec

    rows = max(CHUNK // max(array[:1].nbytes, 1), 1)
    stored = group.create_array(
        name,
        shape=array.shape,
        dtype=array.dtype.newbyteorder("="),  # older versions of Zarr know no other
        chunks=(min(rows, max(len(array), 1)), *(max(n, 1) for n in array.shape[1:])),
        compressors=[Crc32cCodec()],
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    if array.size:
        stored[...] = array


def _read(group: Any, name: str, location: str, place: dict[str, Any] | None = None) -> NDArray[Any]:
    """A stored array; a chunk that is missing is an error, not zeros."""
    try:
        stored = group[name]
        missing = stored.nchunks - stored.nchunks_initialized if stored.size else 0
        array: NDArray[Any] = np.asarray(stored[...])
    except Exception as error:
        raise MissingDataError(f"{location}: array {name!r} of the checkpoint is damaged: {error}") from error
    if missing:
        raise MissingDataError(f"{location}: array {name!r} of the checkpoint has lost {missing} of its chunks")
    if place is None:
        return array
    array = array.astype(plain(place["dtype"]), copy=False)  # Zarr has no order of bytes
    return array.T if place["order"] == "F" else array


def _digest(about: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()
