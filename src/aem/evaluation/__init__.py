"""What a model is worth: scores by quadrature, importance sampling, AEM-KDE and the proposal."""
