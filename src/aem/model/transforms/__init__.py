"""Maps of columns under which a density is easier to learn."""
