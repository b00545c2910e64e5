"""Export of models to ONNX, a C header or a NumPy file. All three formats contain the same graph
(``graph``)."""

from partirvm.export.c_header import to_c
from partirvm.export.graph import check_export
from partirvm.export.numpy_file import to_numpy
from partirvm.export.onnx_file import to_onnx
from partirvm.storage import open_folder

FORMATS = {".onnx": to_onnx, ".h": to_c, ".npz": to_numpy}
"""The export function for each file extension."""

__all__ = ["FORMATS", "check_export", "open_folder", "to_c", "to_numpy", "to_onnx"]
