"""Table 2 of the paper beside ours, and figure 6, from results/vae/*.json."""

from pages import ROOT, markdown, result

from aem.vae.table import PUBLISHED, ROWS, best_number, table_two

PRESETS = ("paper", "best")
FIGURE = "![Handwritten digits: binarised MNIST images, next to them unconditional samples]({})\n\n"
FIGURE_OF = ("best", "paper")  # the first there is


def preset_table(preset: str) -> str:
    """Everything one preset found, and what it took."""
    found = result(f"vae/{preset}")
    if found is None:
        return f"Not measured yet: `aem reproduce vae --preset {preset}`.\n"
    about = f"`{found['command']}`, {found['device']}, {found['seconds'] / 60:.1f} minutes of "
    about += f"training and {found['evaluation_seconds'] / 60:.1f} of scoring, "
    about += f"commit {found['commit']}.\n"
    return f"{table_two(found['priors'])}\n{about}"


def summary_table() -> str:
    """log p(x) as published and of every preset there is; nothing where there is none."""
    found = {
        preset: r["priors"] for preset in PRESETS if (r := result(f"vae/{preset}")) is not None
    }
    if not found:
        return ""
    header = ["model", "published", *(f"`{preset}`" for preset in found)]
    rows = []
    for name, key in ROWS.items():
        ours = [best_number(records.get(key), "log_prob") for records in found.values()]
        if name in PUBLISHED or any(ours):
            rows.append([name, PUBLISHED.get(name, ("", ""))[1], *ours])
    return markdown(header, rows)


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
