"""Questions to a fitted table."""
