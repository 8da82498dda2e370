"""The densities in the plane: training, evaluation, figure rows."""
