"""The geometry of ReLU networks: activation patterns, the polytopes they cut out, and the affine map on each."""
