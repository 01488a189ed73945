"""Experiments of *Parameters or Privacy: A Provable Tradeoff Between Overparameterization and Membership Inference*."""
