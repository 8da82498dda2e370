"""Evaluation of models: scores by quadrature, importance sampling, AEM-KDE and the proposal."""
