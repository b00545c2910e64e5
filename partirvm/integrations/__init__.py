"""RVMs in other libraries: MLflow and skl2onnx."""
