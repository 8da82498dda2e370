"""What keeps the pages of the repository true to its results and its code."""
