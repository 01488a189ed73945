"""Experiments of *The Inside Story: Towards Understanding Privacy Leakage of Neural Networks*."""
