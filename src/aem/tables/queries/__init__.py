"""Queries to a fitted table, such as explanations of rows."""
