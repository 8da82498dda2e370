"""Training of encoder and decoder, alone or together with a prior."""
