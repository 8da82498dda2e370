"""Table 2 of the paper beside our figures, as Markdown."""

from collections.abc import Mapping
from typing import Any

from aem.base.console import as_markdown

# ELBO and log p(x), each with its error, as published (Nash & Durkan 2019, table 2); the last is the
# best posterior by a flow in the paper on neural spline flows.
PUBLISHED = {
    "VAE": ("−84.43 ± 0.23", "−81.23 ± 0.21"),
    "ResMADE-VAE": ("−82.96 ± 0.23", "−79.89 ± 0.21"),
    "AEM-KDE-VAE": ("−82.95 ± 0.23", "−79.88 ± 0.21"),
    "AEM-VAE, importance sampling": ("−82.92 ± 0.23", "−79.87 ± 0.21"),
    "IAF-DSF": ("−81.92 ± 0.04", "−79.86 ± 0.01"),
    "best flow posterior (Durkan et al. 2019)": ("", "−79.63"),
}
ROWS = {  # of the table, and the records they come from
    "VAE": "gaussian",
    "ResMADE-VAE": "proposal",
    "ResMADE-VAE, trained jointly": "joint",
    "AEM-KDE-VAE": "kde",
    "AEM-VAE, importance sampling": "importance",
    "AEM-VAE, quadrature": "quadrature",
    "IAF-DSF": "",
    "best flow posterior (Durkan et al. 2019)": "",
}
HEADER = (
    "model",
    "ELBO, published",
    "log p(x), published",
    "ELBO",
    "log p(x)",
    "log p(x) over the proposal",
    "error",
    "images",
)


def table_rows(records: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return the cells of the table; a row that neither we nor the paper have is left out.

    Parameters
    ----------
    records
        records of the priors by name.
    """
    rows = []
    for name, key in ROWS.items():
        record = records.get(key)
        published = PUBLISHED.get(name, ("", ""))
        if record is None and name not in PUBLISHED:
            continue
        rows.append([name, *published, *_cells(record)])
    return rows


def _cells(record: Mapping[str, Any] | None) -> list[str]:
    if record is None:
        return [""] * 5
    error = record["log_prob_error"]
    return [
        best_number(record, "elbo"),
        best_number(record, "log_prob"),
        _number(record, "log_prob_over_proposal", 3) if "log_prob_over_proposal" in record else "",
        "unknown" if error is None else f"{error:.0e}" if error else "",
        f"{record['images']:,}",
    ]


def best_number(record: Mapping[str, Any] | None, key: str) -> str:
    """Return a score with its error, estimated for all images where fewer were scored.

    Parameters
    ----------
    record
        the record of a prior, or None.
    key
        which score: "elbo" or "log_prob".
    """
    if record is None:
        return ""
    whole = f"{key}_whole_split"
    return _number(record, whole if record.get(whole) is not None else key, 2)


def _number(record: Mapping[str, Any], key: str, digits: int) -> str:
    value, spread = record[key], record[f"{key}_2se"]
    if value is None:
        return "−∞"
    text = f"{value:.{digits}f}".replace("-", "−")
    return text if spread is None else f"{text} ± {spread:.{digits}f}"


def table_two(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the whole table as Markdown.

    Parameters
    ----------
    records
        records of the priors by name.
    """
    return as_markdown([HEADER, *table_rows(records)])
