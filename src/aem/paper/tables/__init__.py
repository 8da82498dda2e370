"""The experiments on tables of real data: train, score every way there is, record."""
