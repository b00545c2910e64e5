"""Models that travel: to ONNX, to a C header, to one NumPy file. All three write the same graph (``graph``)."""
