"""Experiments of *Provable Privacy Attacks on Trained Shallow Neural Networks*."""
