"""Membership from the pieces of a ReLU network: posteriors, hyperedges, boundary distances, and both together."""
