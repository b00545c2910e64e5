"""Conversion of known relative noise to precision weights: noise of standard deviation σ·r gives the weight 1/r²."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data.checks import check_dtype, numeric_array
from partirvm.data.readers import module_of
from partirvm.data.source import Float
from partirvm.data.zarr_source import refuse_missing_chunks
from partirvm.errors import DataError


def noise_weights(noise: Any, weights: Any = None) -> Any:
    """Return the precision weights (N,) of rows with relative noise ``noise`` (N,), multiplied by ``weights`` (N,) if
    given.

    Dask and Zarr arrays are converted when they are read, not in this call. Raises ``DataError`` for a wrong shape or
    dtype, and for noise that is not positive and finite. For Dask and Zarr arrays this error is raised on reading.

    >>> noise_weights([1.0, 2.0, 0.5], [1.0, 4.0, 0.0]).tolist()
    [1.0, 1.0, 0.0]
    """
    if hasattr(noise, "to_dask_array"):
        noise = noise.to_dask_array(lengths=True)
    lazy = hasattr(noise, "dask") or module_of(noise) == "zarr"
    noise = noise if lazy else numeric_array("sample_noise", noise)
    if len(noise.shape) != 1:
        raise DataError(f"sample_noise must have shape (rows,), found {tuple(noise.shape)}.")
    check_dtype("sample_noise", noise.dtype)
    if weights is not None:
        weights = weights.to_dask_array(lengths=True) if hasattr(weights, "to_dask_array") else weights
        weights = weights if hasattr(weights, "dask") or module_of(weights) == "zarr" else np.asarray(weights)
        if weights.shape != noise.shape:
            raise DataError(f"sample_noise has shape {tuple(noise.shape)}, the weights {tuple(weights.shape)}.")
    for name, array in (("sample_noise", noise), ("sample_weight", weights)):
        refuse_missing_chunks(name, array, f"leave {name} out")
    if module_of(noise) == "zarr":
        return NoiseWeights(noise, weights)
    found = noise.map_blocks(_block_weights, dtype=np.float64, meta=np.empty(0)) if lazy else weights_of_noise(noise)
    return found if weights is None else found * (np.asarray(weights) if module_of(weights) == "zarr" else weights)


class NoiseWeights:
    """A Zarr array of relative noise that is read as weights. The class has the part of the array interface that
    ``ZarrArraySource`` uses.
    """

    def __init__(self, noise: Any, weights: Any = None) -> None:
        self.shape, self.dtype = noise.shape, np.dtype(np.float64)
        self.chunks, self.shards = noise.chunks, getattr(noise, "shards", None)
        self._noise, self._weights = noise, weights

    def __getitem__(self, rows: slice) -> Float:
        found = weights_of_noise(np.asarray(self._noise[rows]), rows.start or 0)
        return found if self._weights is None else found * np.asarray(self._weights[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.float64, copy=False)


def weights_of_noise(noise: NDArray[Any], first: int = 0, name: str = "sample_noise") -> Float:
    """Return 1/r² for a run of rows that begins at row ``first``. Raises ``DataError`` for the first invalid value."""
    noise = np.asarray(noise, dtype=np.float64)
    with np.errstate(all="ignore"):
        weights: Float = 1.0 / noise**2
    wrong = ~((noise > 0) & (weights > 0) & np.isfinite(weights))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise DataError(
            f"{name} is {noise[place]:g} in row {first + place:,} (counted from 0): noise and 1/noise² must be "
            "positive and finite. Remove the row, or set its weight to zero and its noise to any valid value."
        )
    return weights


def _block_weights(noise: NDArray[Any], block_info: Any = None) -> Float:
    return weights_of_noise(noise, block_info[0]["array-location"][0][0] if block_info else 0)
