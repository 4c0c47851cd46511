"""Arrays, random keys, threads, progress bars, and problem sizes at which methods change."""
