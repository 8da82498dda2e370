"""Data sets: tasks in the plane with exact densities, and real tables with their downloads."""
