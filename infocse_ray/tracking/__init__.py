"""Curves, settings and final scores of a run, for TensorBoard, MLflow and Weights & Biases."""
