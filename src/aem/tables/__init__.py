"""Models of tables: column names, discrete columns, automatic fits, and queries."""
