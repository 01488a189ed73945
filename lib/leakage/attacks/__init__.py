"""Attacks, one module each: what the attacker sees goes in, a score (larger means more likely a member) comes out."""
