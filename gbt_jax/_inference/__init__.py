"""From a model and comparisons to certified scores."""
