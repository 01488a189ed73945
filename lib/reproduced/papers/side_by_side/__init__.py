"""The page *Side by side*: every membership attack on the same targets, and what each rung of information is worth."""
