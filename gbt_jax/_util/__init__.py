"""Arrays, random keys, threads, progress, and sizes at which the method changes."""
