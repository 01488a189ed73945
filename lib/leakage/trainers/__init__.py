"""Trainers: many models fitted in one tensor program."""
