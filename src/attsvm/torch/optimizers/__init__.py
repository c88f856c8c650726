"""Optimizers for PyTorch with a known implicit bias."""
