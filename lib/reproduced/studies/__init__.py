"""What belongs to one paper: its experiments, with the laws and data of its own settings; only these take a `seed`."""
