"""Membership attacks, a module for each thing that an attacker sees or knows; larger scores are likelier members."""
