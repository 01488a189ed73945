"""Metrics of attacks and of reconstructions, with confidence intervals."""
