"""Experiments of *Reconstructing Training Data from Model Gradient, Provably*."""
