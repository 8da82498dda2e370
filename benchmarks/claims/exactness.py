"""How exact are scores and samples? The measurements of docs/exactness.md.

    python -m benchmarks.claims.exactness --out results/exactness/plane.json NAME=MODEL …

NAME is a task in the plane and MODEL its model file. The model of thousands of narrow modes (the
comb) is trained here.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from aem.base.files import write_json
from aem.base.provenance import provenance
from aem.conditionals.batch import Conditionals
from aem.conditionals.cdf import PanelCDF
from aem.conditionals.normalizer import Quadrature, normalizer
from aem.config import ModelConfig, TrainConfig
from aem.data.tasks import plane_task
from aem.model.aem import AEM
from aem.model.files import load_model, save_model
from aem.model.sampling import proposal_draws
from aem.paper.plane.density import plane_density
from aem.paper.studies.trapezoid import trapezoid_log_z
from aem.training import fit

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
MEMORY = 2**32 if CUDA else 2**28
PUBLISHED = 20_000  # importance samples a conditional in the paper's table 1
PIECES = 1024  # SciPy integrates between this many quantiles: it knows nothing of kinks


def held_out(task: str, model: AEM, count: int, seed: int) -> Conditionals:
    """Return p(x2 | x1) of new rows; the marginal p(x1) is the same for all rows, as in the paper."""
    rows = torch.from_numpy(plane_task(task).sample(count, seed)).double().to(DEVICE)
    exact = model.in_double()
    flat = exact.conditionals(exact.standardise(rows)).flatten()
    return flat.select(2 * torch.arange(count, device=DEVICE) + 1)


def scipy_log_z(conditionals: Conditionals) -> Tensor:
    """Return log Z by SciPy's tanh-sinh rule in x, which has only the energy in common with ours."""
    edges = torch.linspace(0, 1, PIECES + 1, dtype=torch.float64, device=DEVICE)
    edges = edges.clamp(1e-17, 1 - 1e-16)
    parts = []
    for chosen in torch.arange(len(conditionals.projected), device=DEVICE).split(20):
        some = conditionals.select(chosen)
        x = some.proposal.icdf(edges.expand(len(chosen), -1).contiguous()).cpu().numpy()
        index = np.repeat(np.arange(len(chosen))[:, None], PIECES, axis=1)

        def density(x: Any, index: Any, some: Conditionals = some) -> Any:
            shape = np.broadcast_shapes(x.shape, index.shape)
            flat = torch.from_numpy(np.broadcast_to(x, shape).reshape(-1, 1).copy()).to(DEVICE)
            which = torch.from_numpy(np.broadcast_to(index, shape).reshape(-1).copy()).to(DEVICE)
            values = []
            for xs, ws in zip(flat.split(2**19), which.split(2**19), strict=True):
                here = some.select(ws)
                values.append((here.log_weight(xs) + here.proposal.log_prob(xs)).exp()[:, 0])
            return torch.cat(values).cpu().numpy().reshape(shape)

        answer = scipy.integrate.tanhsinh(
            density, x[:, :-1], x[:, 1:], args=(index,), maxlevel=6, atol=1e-10, rtol=1e-7
        )
        parts.append(np.log(answer.integral.sum(axis=1)))
    return torch.from_numpy(np.concatenate(parts)).to(DEVICE)


def against_scipy(task: str, model: AEM, count: int) -> dict[str, Any]:
    """Compare default scores with SciPy's rule on many conditionals."""
    conditionals = held_out(task, model, count, seed=11)
    ours = normalizer(conditionals, Quadrature(), tolerance=1e-3 / 2)
    error = (ours.log_z - scipy_log_z(conditionals)).abs()
    return {
        "conditionals": count,
        "within_stated_error": float((error <= ours.error).double().mean()),
        "median_abs_error": float(error.median()),
        "max_abs_error": float(error.max()),
        "mean_stated_error": float(ours.error.mean()),
        "mean_nodes": float(ours.nodes.double().mean()),
    }


def equal_accuracy(task: str, model: AEM, count: int = 250) -> dict[str, Any]:
    """Find the nodes that match the root-mean-square error of the paper's 20,000 samples."""
    conditionals = held_out(task, model, count, seed=12)
    truth = normalizer(conditionals, Quadrature(), tolerance=1e-6).log_z

    def rms(log_z: Tensor) -> float:
        return float((log_z - truth).square().mean().sqrt())

    torch.manual_seed(0)
    estimates = []
    for chosen in torch.arange(count, device=DEVICE).split(5):
        some = conditionals.select(chosen)
        log_w = some.log_weight(proposal_draws(some, PUBLISHED))
        estimates.append(log_w.logsumexp(-1) - math.log(PUBLISHED))
    target = rms(torch.cat(estimates))
    for tolerance in (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 1e-3):
        ours = normalizer(conditionals, Quadrature(), tolerance=tolerance)
        if rms(ours.log_z) <= target:
            break
    nodes = float(ours.nodes.double().mean())
    return {
        "samples": PUBLISHED,
        "samples_rms_error": target,
        "nodes": nodes,
        "nodes_rms_error": rms(ours.log_z),
        "tolerance": tolerance,
        "times_fewer": PUBLISHED / nodes,
    }


def seven_figures(task: str, model: AEM, count: int = 20) -> dict[str, Any]:
    """Compare the trapezoid rule in x, quadrature in quantiles, and the CDF at +∞ times Z."""
    conditionals = held_out(task, model, count, seed=13)
    ours = normalizer(conditionals, Quadrature(max_nodes=2**22), tolerance=3e-8, keep_panels=True)
    truth = trapezoid_log_z(conditionals, memory=MEMORY)
    relative = (ours.log_z - truth.log_z).expm1().abs()
    at_infinity = PanelCDF.of(ours).cdf(torch.full_like(ours.log_z[:, None], torch.inf))
    return {
        "conditionals": count,
        "max_relative_difference_of_z": float(relative.max()),
        "max_difference_of_cdf_at_infinity_from_one": float((at_infinity - 1).abs().max()),
        "trapezoid_converged": float(truth.converged.double().mean()),
    }


def grid_integral(task: str, model: AEM, points: int = 2048) -> float:
    """Integrate p over a fine grid that is wider than the window of the task."""
    window = plane_task(task).bounds
    if not model.head.bounded:
        (a, b), (c, d) = window
        window = ((a - (b - a) / 4, b + (b - a) / 4), (c - (d - c) / 4, d + (d - c) / 4))
    density = plane_density(model, window, points, tolerance=1e-5)
    cell = (density.x[1] - density.x[0]) * (density.y[1] - density.y[0])
    return float(np.exp(density.model).sum() * cell)


def pit_uniformity(model: AEM, seeds: int = 20, rows: int = 1_000) -> dict[str, Any]:
    """Return Kolmogorov–Smirnov p-values of PIT values of exact and inverse samples, by seed."""
    result: dict[str, Any] = {"seeds": seeds, "rows": rows}
    for method in ("exact", "inverse"):
        p_values = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            samples = model().sample((rows,), method=method)
            pit = model().cdf(samples).cpu().double().numpy()
            p_values += [float(scipy.stats.kstest(u, "uniform").pvalue) for u in pit.T]
        result[method] = {
            "p_values": p_values,
            "p_values_uniform_p": float(scipy.stats.kstest(p_values, "uniform").pvalue),
            "smallest_p": min(p_values),
        }
    return result


def comb_rows(count: int, seed: int) -> np.ndarray:
    """Draw a smooth column, and one on a grid with steps of 0.002 plus noise of deviation 0.001."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=count)
    smooth = 0.6 * first + 0.8 * rng.normal(size=count)
    return np.stack((first, np.round(smooth / 0.002) * 0.002 + 0.001 * rng.random(count)), axis=1)


def gauss_legendre(flat: Conditionals, panels: int) -> Tensor:
    """Return log Z by ten Gauss–Legendre nodes in each of many equal panels in x."""
    points, shares = np.polynomial.legendre.leggauss(10)
    places = torch.from_numpy(
        (np.arange(panels)[:, None] + 0.5 * (1 + points)).reshape(-1) / panels
    )
    log_share = torch.from_numpy(np.log(np.tile(shares / (2 * panels), panels))).to(DEVICE)
    ends = flat.proposal.icdf(
        flat.projected.new_tensor([1e-12, 1 - 1e-12]).expand(len(flat.projected), 2)
    )
    log_z = []
    for i, (low, high) in enumerate(ends):
        one = flat.select(torch.tensor([i], device=DEVICE))
        x = low + (high - low) * places.to(DEVICE)
        sums = [
            (one.log_unnormalized(some[None, :]) + share).logsumexp(-1)
            for some, share in zip(x.split(50_000), log_share.split(50_000), strict=True)
        ]
        log_z.append(torch.stack(sums).logsumexp(0) + (high - low).log())
    return torch.cat(log_z)


def comb_model(steps: int, file: Path | None) -> AEM:
    """Train a model of the comb, or read it from the file of an earlier run."""
    if file is not None and file.is_file():
        return load_model(file, DEVICE).requires_grad_(False)
    train = comb_rows(2_000_000, 0)
    width, batch = (128, 2048) if CUDA else (64, 512)
    config = ModelConfig(
        hidden=2 * width, blocks=2, energy_hidden=width, energy_blocks=width // 32, frequencies=16
    )
    torch.manual_seed(0)
    model = AEM.for_data(config, train)
    settings = TrainConfig(steps=steps, batch_size=batch, learning_rate=1e-3, validate_every=1000)
    fit(model, train, comb_rows(10_000, 1), settings, quiet=True)
    if file is not None:
        save_model(model, file, steps=steps)
    return model.requires_grad_(False)


def comb(model: AEM, scored: int = 200) -> dict[str, Any]:
    """Compare default scores of the comb with a reference of 200,000 nodes per conditional.

    Where they differ by half of the stated error, the reference is computed again with 800,000
    nodes, because a rule that is not adaptive can be wrong itself.
    """
    rows = torch.from_numpy(comb_rows(scored, 2)).to(DEVICE)
    started = time.monotonic()
    scores = model().scores(rows, Quadrature())
    seconds = time.monotonic() - started
    exact = model.in_double()
    flat = exact.conditionals(exact.standardise(rows)).flatten()
    own = flat.select(2 * torch.arange(scored, device=DEVICE) + 1)
    first = gauss_legendre(
        flat.select(torch.arange(1, device=DEVICE)), 20_000
    )  # the same in all rows
    reference = first + gauss_legendre(own, 20_000)
    log_z, stated = scores.log_z.sum(-1), scores.error.sum(-1)
    difference = (log_z - reference).abs()
    unsettled = (difference > 0.5 * stated).nonzero()[:, 0]
    settled = difference.clone()
    if len(unsettled):
        finer = first + gauss_legendre(own.select(unsettled), 80_000)
        settled[unsettled] = (log_z[unsettled] - finer).abs()
    smooth = -0.5 * math.log(2 * math.pi * math.e) * 2 - math.log(0.8)
    return {
        "rows": scored,
        "log_prob": float(scores.log_prob.sum(-1).mean()),
        "smooth_entropy_bound": smooth,
        "best_possible": smooth + math.log(2),
        "mean_difference": float(difference.mean()),
        "max_difference": float(difference.max()),
        "max_share_of_stated_error": float((difference / stated).max()),
        "rows_with_a_finer_reference": len(unsettled),
        "max_difference_settled": float(settled.max()),
        "max_share_of_stated_error_settled": float((settled / stated).max()),
        "mean_stated_error": float(stated.mean()),
        "rows_not_converged": int((~scores.converged).any(-1).sum()),
        "mean_nodes": float(scores.nodes[:, 1].double().mean()),
        "seconds": seconds,
    }


def plain_sample(model: AEM, rows: int) -> Tensor:
    """Draw rows as in the paper, with D full passes and 100 proposals each."""
    z = torch.zeros(rows, model.config.features, device=DEVICE)
    for d in range(model.config.features):
        outputs = torch.cat([model.arnn(part) for part in z.split(2048)])
        conditionals = model.interpret(outputs[:, d], z[:, :d], d).flatten()
        for chosen in torch.arange(rows, device=DEVICE).split(2048):
            some = conditionals.select(chosen)
            y = proposal_draws(some, 100)
            pick = torch.multinomial(some.log_weight(y).softmax(-1), 1)
            z[chosen, d] = y.gather(-1, pick)[:, 0]
    return z


@torch.no_grad()
def sampling_speed(rows: int = 10_000) -> dict[str, Any]:
    """Measure exact sampling and sampling by D full passes at D = 21, H = 512, in one run."""
    torch.manual_seed(0)
    config = ModelConfig(features=21, hidden=512, components=20, frequencies=8)
    model = AEM(config).to(DEVICE).eval()
    # Blocks are zero at initialisation; random weights make the energies differ.
    for block in (*model.arnn.blocks, *model.energy.blocks):
        torch.nn.init.normal_(block.second.weight, std=0.05)

    def seconds(draw: Any) -> float:
        draw()
        if CUDA:
            torch.cuda.synchronize()
        started = time.monotonic()
        draw()
        if CUDA:
            torch.cuda.synchronize()
        return time.monotonic() - started

    ours = seconds(lambda: model().sample((rows,)))
    plain = seconds(lambda: plain_sample(model, rows))
    return {"rows": rows, "exact_seconds": ours, "plain_seconds": plain, "ratio": plain / ours}


def main() -> None:
    """Measure everything and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="TASK=MODEL")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--conditionals", type=int, default=1000)
    parser.add_argument("--comb-steps", type=int, default=10_000)
    parser.add_argument("--comb-model", type=Path, help="read from here, or written here")
    parser.add_argument("--parts", default="scipy,equal,seven,grid,pit,comb,sampling")
    arguments = parser.parse_args()
    started = time.monotonic()
    result: dict[str, Any] = {"task": "exactness", **provenance(TrainConfig(), 0, DEVICE)}
    parts: dict[str, Any] = {
        "scipy": lambda t, m: against_scipy(t, m, arguments.conditionals),
        "equal": equal_accuracy,
        "seven": seven_figures,
        "grid": grid_integral,
        "pit": lambda t, m: pit_uniformity(m),
    }
    wanted = arguments.parts.split(",")
    for item in arguments.models:
        task, _, path = item.partition("=")
        model = load_model(path, DEVICE).requires_grad_(False)
        for name, part in parts.items():
            if name in wanted:
                before = time.monotonic()
                found = part(task, model)
                result.setdefault(name, {})[task] = found
                print(
                    f"{name} {task} {time.monotonic() - before:.1f} s: {_short(found)}", flush=True
                )
                write_json(arguments.out, result)
    alone: Any
    for name, alone in (
        ("sampling", sampling_speed),
        ("comb", lambda: comb(comb_model(arguments.comb_steps, arguments.comb_model))),
    ):
        if name in wanted:
            before = time.monotonic()
            result[name] = alone()
            print(f"{name} {time.monotonic() - before:.1f} s: {_short(result[name])}", flush=True)
            write_json(arguments.out, result)
    result["seconds"] = round(time.monotonic() - started, 1)
    write_json(arguments.out, result)


def _short(found: Any) -> str:
    return json.dumps(found)[:300]


if __name__ == "__main__":
    main()
