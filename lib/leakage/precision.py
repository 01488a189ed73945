"""The precision of the theory."""

import torch

DTYPE = torch.float64
"""float32 is too coarse for laws, quadrature and exact samplers."""
