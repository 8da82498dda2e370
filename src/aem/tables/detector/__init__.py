"""The outlier detector: a robust fit, three views of a row, a threshold."""
