"""Comparisons, their groups, their incidence matrix, their graph, and their packing."""
