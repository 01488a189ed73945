"""Training of many models at once: ensembles of networks, DP-SGD, exact solvers, and steps towards the margin."""
