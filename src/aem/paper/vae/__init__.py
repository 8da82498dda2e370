"""The latent-variable experiment: a convolutional VAE on binarised MNIST."""
