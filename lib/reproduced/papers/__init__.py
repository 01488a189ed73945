"""A package for each paper: its laws, its trainers and its experiments; only these take a `seed`."""
