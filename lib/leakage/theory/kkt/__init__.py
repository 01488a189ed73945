"""The optimality (KKT) conditions of the maximum-margin problem of two-layer networks, and what follows from them."""
