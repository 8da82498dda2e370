"""Table 2 of the paper beside ours, and figure 6, from results/vae/*.json."""

import json
from pathlib import Path
from typing import Any

from aem.vae.table import PUBLISHED, ROWS, best_number, table_two

ROOT = Path(__file__).resolve().parents[1]
PRESETS = ("paper", "best")
FIGURE = "![Handwritten digits: binarised MNIST images, next to them unconditional samples]({})\n\n"
FIGURE_OF = ("best", "paper")  # the first there is


def _result(preset: str) -> dict[str, Any] | None:
    path = ROOT / "results" / "vae" / f"{preset}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def preset_table(preset: str) -> str:
    """Everything one preset found, and what it took."""
    result = _result(preset)
    if result is None:
        return f"Not measured yet: `aem reproduce vae --preset {preset}`.\n"
    about = f"`{result['command']}`, {result['device']}, {result['seconds'] / 60:.1f} minutes of "
    about += f"training and {result['evaluation_seconds'] / 60:.1f} of scoring, "
    about += f"commit {result['commit']}.\n"
    return f"{table_two(result['priors'])}\n{about}"


def summary_table() -> str:
    """log p(x) as published and of every preset there is; nothing where there is none."""
    found = {preset: r["priors"] for preset in PRESETS if (r := _result(preset)) is not None}
    if not found:
        return ""
    header = ["model", "published", *(f"`{preset}`" for preset in found)]
    rows = []
    for name, key in ROWS.items():
        ours = [best_number(records.get(key), "log_prob") for records in found.values()]
        if name in PUBLISHED or any(ours):
            rows.append([name, PUBLISHED.get(name, ("", ""))[1], *ours])
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def figure(folder: str) -> str:
    """Figure 6, of the best preset that has one; pages find pictures in different places."""
    for preset in FIGURE_OF:
        if (ROOT / "results" / "vae" / f"{preset}.png").is_file():
            return FIGURE.format(f"{folder}/vae/{preset}.png")
    return ""


def section() -> str:
    """What the README shows of it, once there is something."""
    table = summary_table()
    if not table:
        return ""
    text = "An AEM as the prior of a variational autoencoder on binarised MNIST\n"
    text += (
        "([docs/vae.md](docs/vae.md)): the importance-weighted bound of log p(x) with 50 samples,\n"
    )
    text += "in nats, on the test images.\n\n"
    return f"{text}{figure('results')}{table}"


TABLES = {
    "vae": section,
    "vae_figure": lambda: figure("pictures"),
    "vae_paper": lambda: preset_table("paper"),
    "vae_best": lambda: preset_table("best"),
}
