"""The sizes in which a chapter runs."""

PROFILES = ("smoke", "ci", "paper")
"""In rising order: whether it runs at all, what continuous integration judges, what the papers did."""
