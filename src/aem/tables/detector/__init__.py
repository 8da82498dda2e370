"""The outlier detector: a robust fit, three scores of normality, a threshold."""
