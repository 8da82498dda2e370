"""The benchmark tables and pictures of the literature, one module per data set."""
