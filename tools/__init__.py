"""Programs that generate and check the pages and packages of the repository."""
