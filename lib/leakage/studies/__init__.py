"""Experiments of the papers: each draws data, trains, attacks and returns named results; only they take a `seed`."""
