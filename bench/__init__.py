"""Measurements. Not tests: they judge nothing."""
