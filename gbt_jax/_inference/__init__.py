"""Fitting: certified scores from a model and comparisons."""
