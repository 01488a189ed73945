"""Experiments of *A Blessing of Dimensionality in Membership Inference through Regularization*."""
