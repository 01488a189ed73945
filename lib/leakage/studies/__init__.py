"""What belongs to one paper: its experiments, and the laws and data of its own settings; only here is a `seed` taken."""
