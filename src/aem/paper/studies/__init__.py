"""The paper's studies of its own estimators, each as a function that returns plain numbers."""
