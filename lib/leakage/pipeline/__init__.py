"""From MyST chapters to a judged, rendered book: the command line `leakage` and what it is made of."""
