"""Table 2 of the paper beside ours, figure 6 and what was tried, from results/vae and its trials."""

from collections.abc import Mapping
from typing import Any

from aem.paper.vae.table import PUBLISHED, ROWS, best_number, table_two
from tools.render.pages import ROOT, markdown, result

PRESETS = ("paper", "best")
BOUNDS = {"elbo": "ELBO", "log_prob": "log p(x)"}  # in the order they are published
FIGURE = "![Handwritten digits: binarised MNIST images, next to them unconditional samples]({})\n\n"
SECTION = """The paper uses an AEM as the prior of a variational autoencoder (VAE) on binarised MNIST
([docs/vae.md](docs/vae.md)). The table has the importance-weighted bound on log p(x) of test images
with 50 samples per image, in nats with two standard errors. The Gaussian prior of `best` is the
starting point of a joint training of encoder, decoder and prior, and was not tuned by itself. The
digits at the top of this page are samples of `best`.

"""
AUGMENT = ("stage_one.augment", "joint.augment", "joint.augment_end")  # what the trials differ in


def preset_table(preset: str) -> str:
    """All scores of one preset, with the command, device and time."""
    found = result(f"vae/{preset}")
    if found is None:
        return f"Not measured yet: `aem reproduce vae --preset {preset}`.\n"
    about = f"`{found['command']}`, {found['device']}, {found['seconds'] / 60:.1f} minutes of "
    about += f"training and {found['evaluation_seconds'] / 60:.1f} of scoring, "
    about += f"commit {found['commit']}. {found.get('note', '')}".rstrip() + "\n"
    return f"{table_two(found['priors'])}\n{about}"


def summary_table(*bounds: str) -> str:
    """Bounds as published and of every preset there is; nothing where there is none."""
    found = {
        preset: r["priors"] for preset in PRESETS if (r := result(f"vae/{preset}")) is not None
    }
    if not found:
        return ""
    places = [(bound, list(BOUNDS).index(bound)) for bound in bounds]
    header = ["model"]
    for bound in bounds:
        header += [f"{BOUNDS[bound]}, published", *(f"{BOUNDS[bound]}, `{p}`" for p in found)]
    rows = []
    for name, key in ROWS.items():
        published = PUBLISHED.get(name, ("", ""))
        row = [name]
        for bound, place in places:
            ours = (best_number(records.get(key), bound) for records in found.values())
            row += [published[place], *ours]
        if any(row[1:]):
            rows.append(row)
    return markdown(header, rows)


def figure(preset: str, folder: str) -> str:
    """Figure 6 of a preset, if it was drawn; pages find pictures in different places."""
    if (ROOT / "results" / "vae" / f"{preset}.png").is_file():
        return FIGURE.format(f"{folder}/vae/{preset}.png")
    return ""


def section() -> str:
    """The section of the README, once there is a result."""
    table = summary_table("log_prob")
    if not table:
        return ""
    return f"{SECTION}{table}"


def progress_table() -> str:
    """Validation scores of `best` at the ends of its stages, and at the worst step."""
    found = result("vae/best")
    if found is None:
        return "Not measured yet: `aem reproduce vae --preset best`.\n"
    stages = found["training"]
    warmup = found["config"]["joint"]["prior_warmup"]
    alone, joint = stages["stage_one"]["history"], stages["joint"]["history"]
    moments = {
        "stage one, Gaussian prior, its best step": _at(alone, stages["stage_one"]["best_step"]),
        "the same networks, a learnt prior": _at(joint, warmup),
        "joint stage, its worst validation": min(joint, key=lambda h: h["validation_bound"]),
        "joint stage, its best step": _at(joint, stages["joint"]["best_step"]),
    }
    rows = [
        [name, f"{h['step']:,}", f"{h['validation_elbo']:.2f}", f"{h['validation_bound']:.2f}"]
        for name, h in moments.items()
    ]
    return markdown(["averaged weights of", "step of the stage", "ELBO", "bound"], rows)


def _at(history: list[dict[str, Any]], step: int) -> Mapping[str, Any]:
    return next(h for h in history if h["step"] == step)


def trials_table() -> str:
    """Trials that were stopped, compared at the last step that all of them reached."""
    found = result("experiments/vae")
    if found is None:
        return "No trial is recorded yet.\n"
    trials = found["trials"]
    last = min(t["stopped_at"]["joint"] for t in trials)
    rows = []
    for trial in trials:
        strengths = [trial["config"][s][k] for s, k in (name.split(".") for name in AUGMENT)]
        before = trial["training"]["stage_one"]["history"][-1]
        after = _at(trial["training"]["joint"]["history"], last)
        scores = [f"{before['validation_elbo']:.2f}", f"{after['validation_score']:.2f}"]
        rows.append([*(f"{s:g}" for s in strengths), *scores])
    header = [f"`{name}`" for name in AUGMENT]
    return markdown([*header, "ELBO after stage one", f"bound at joint step {last:,}"], rows)


TABLES = {
    "vae": section,
    "vae_bounds": lambda: summary_table("elbo", "log_prob"),
    "vae_figure_paper": lambda: figure("paper", "pictures"),
    "vae_figure_best": lambda: figure("best", "pictures"),
    "vae_paper": lambda: preset_table("paper"),
    "vae_best": lambda: preset_table("best"),
    "vae_progress": progress_table,
    "vae_trials": trials_table,
}
