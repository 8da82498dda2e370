"""Densities of columns: the AEM, its transforms, scores, samples, mixtures and files."""
