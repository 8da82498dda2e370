"""The AEM as a prior: variational autoencoders, their bounds, and the paper's experiment."""

from aem.vae.bounds import Draws, draw_posterior, elbo, importance_bound
from aem.vae.evaluation import Bounds, bounds_under
from aem.vae.files import load_prior, load_vae, save_prior, save_vae
from aem.vae.networks import ConvolutionalVae
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
    "Bounds",
    "ConvolutionalVae",
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
    "load_vae",
    "proposal_prior",
    "quadrature_prior",
    "save_prior",
    "save_vae",
    "standard_normal",
]
