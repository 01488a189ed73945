"""Ridge logistic regression in high dimensions: its limit law, its outputs on seen and fresh points, their attacks."""
