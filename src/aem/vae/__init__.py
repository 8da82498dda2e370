"""The AEM as a prior: posteriors, bounds and scores for any encoder and decoder."""

from aem.vae.bounds import (
    Autoencoder,
    Bounds,
    Draws,
    bounds_under,
    draw_posterior,
    elbo,
    importance_bound,
)
from aem.vae.files import load_prior, save_prior
from aem.vae.posterior import GaussianPosterior
from aem.vae.prior import fit_prior
from aem.vae.priors import (
    PriorScores,
    importance_prior,
    kde_prior,
    proposal_prior,
    quadrature_prior,
    standard_normal,
)

__all__ = [
    "Autoencoder",
    "Bounds",
    "Draws",
    "GaussianPosterior",
    "PriorScores",
    "bounds_under",
    "draw_posterior",
    "elbo",
    "fit_prior",
    "importance_bound",
    "importance_prior",
    "kde_prior",
    "load_prior",
    "proposal_prior",
    "quadrature_prior",
    "save_prior",
    "standard_normal",
]
