"""Reconstructing a batch from the gradient that a client returns to a server which chose the model."""
