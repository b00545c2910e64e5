"""Export of models to ONNX, to a C header and to one NumPy file. All three write the same graph (``graph``)."""

from partirvm.export.c_header import to_c
from partirvm.export.numpy_file import to_numpy
from partirvm.export.onnx_file import to_onnx

FORMATS = {".onnx": to_onnx, ".h": to_c, ".npz": to_numpy}
"""The function that writes a file of this ending."""

__all__ = ["FORMATS", "to_c", "to_numpy", "to_onnx"]
