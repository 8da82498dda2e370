"""`aem reproduce vae`: the AEM as the prior of a variational autoencoder."""

from rich.console import Console
from rich.table import Table

from aem.base.console import say
from aem.paper.cli.options import Config, Out, Preset, Quiet, SettingsOption
from aem.paper.cli.progress import shown
from aem.paper.vae.config import vae_experiment
from aem.paper.vae.run import VaeRun, run_vae
from aem.paper.vae.table import HEADER, table_rows

COLUMNS = {  # of the whole table, those a terminal has room for
    "model": "model",
    "log p(x), published": "published",
    "log p(x)": "log p(x)",
    "ELBO": "ELBO",
    "images": "images",
}


def vae(
    out: Out,
    preset: Preset = "fast",
    config: Config = None,
    settings: SettingsOption = None,
    quiet: Quiet = False,
) -> None:
    """Train a VAE on binarised MNIST, give it an AEM prior, and score it under every prior."""
    experiment = vae_experiment(preset, config, settings or [])
    with shown(quiet=quiet) as report:
        run = run_vae(experiment, preset, out, quiet=quiet, report=report)
    if not quiet:
        _show(run)


def _show(run: VaeRun) -> None:
    metrics = run.metrics
    table = Table(title=f"vae · {metrics['preset']}", title_justify="left")
    for name in COLUMNS.values():
        table.add_column(name, no_wrap=name != "model")
    for row in table_rows(metrics["priors"]):
        cells = dict(zip(HEADER, row, strict=True))
        table.add_row(*(cells[name] for name in COLUMNS))
    Console().print(table)
    text = f"{metrics['seconds']:.0f} s of training, {metrics['evaluation_seconds']:.0f} s of"
    text += f" evaluation, {metrics['device']}; written to {run.folder}"
    say(text)
