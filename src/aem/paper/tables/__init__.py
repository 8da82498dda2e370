"""The experiments on tables of real data: training, all scores, and their records."""
