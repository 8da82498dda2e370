"""Tables of how exact scores and samples are, from results/exactness/*.json."""

from collections.abc import Callable
from typing import Any

from tools.render.pages import markdown, result

NOT_YET = "Not measured yet: `python -m benchmarks.claims.exactness`."


def _measured(name: str = "plane") -> dict[str, Any]:
    return result(f"exactness/{name}") or {}


def _table(header: list[str], rows: list[list[str]]) -> str:
    return markdown(header, rows, NOT_YET)


def against_scipy() -> str:
    """Default scores against SciPy's quadrature."""
    header = [
        "model",
        "conditionals",
        "within the stated error",
        "median error",
        "largest error",
        "stated error",
        "nodes",
    ]
    rows = [
        [
            task,
            f"{r['conditionals']:,}",
            f"{100 * r['within_stated_error']:.1f} %",
            f"{r['median_abs_error']:.1e}",
            f"{r['max_abs_error']:.1e}",
            f"{r['mean_stated_error']:.1e}",
            f"{r['mean_nodes']:,.0f}",
        ]
        for task, r in _measured().get("scipy", {}).items()
    ]
    return _table(header, rows)


def equal_accuracy() -> str:
    """Energy evaluations for the error of the paper's 20,000 samples."""
    header = [
        "model",
        "samples",
        "error of the samples",
        "nodes",
        "error of the nodes",
        "times fewer",
    ]
    rows = [
        [
            task,
            f"{r['samples']:,}",
            f"{r['samples_rms_error']:.1e}",
            f"{r['nodes']:,.0f}",
            f"{r['nodes_rms_error']:.1e}",
            f"{r['times_fewer']:.0f}",
        ]
        for task, r in _measured().get("equal", {}).items()
    ]
    return _table(header, rows)


def agreement() -> str:
    """Trapezoid rule, CDF at infinity, integral over the plane, PIT values."""
    m = _measured()
    header = [
        "model",
        "Z against the trapezoid rule (relative)",
        "1 − F(∞)",
        "∫ p over a grid",
        "PIT p-values uniform: exact",
        "inverse",
    ]
    rows = [
        [
            task,
            f"{r['max_relative_difference_of_z']:.0e}",
            f"{r['max_difference_of_cdf_at_infinity_from_one']:.0e}",
            f"{m['grid'][task]:.5f}",
            f"p = {m['pit'][task]['exact']['p_values_uniform_p']:.3f}",
            f"p = {m['pit'][task]['inverse']['p_values_uniform_p']:.3f}",
        ]
        for task, r in m.get("seven", {}).items()
    ]
    return _table(header, rows)


def comb() -> str:
    """Scores of a column with thousands of narrow modes."""
    r = _measured("comb").get("comb")
    if r is None:
        return f"{NOT_YET}\n"
    return _table(
        ["what", "value"],
        [
            ["log-likelihood, nats", f"{r['log_prob']:.3f}"],
            ["best possible", f"{r['best_possible']:.3f}"],
            ["best possible for a smooth density", f"{r['smooth_entropy_bound']:.3f}"],
            ["mean difference from 200,000 nodes", f"{r['mean_difference']:.1e}"],
            ["largest difference", f"{r['max_difference']:.1e}"],
            ["largest difference over its stated error", f"{r['max_share_of_stated_error']:.2f}"],
            ["rows checked with 800,000 nodes", str(r["rows_with_a_finer_reference"])],
            ["largest difference in these rows", f"{r['max_difference_settled']:.1e}"],
            [
                "largest difference over its stated error in these rows",
                f"{r['max_share_of_stated_error_settled']:.2f}",
            ],
            ["rows that did not converge", str(r["rows_not_converged"])],
            ["nodes per conditional", f"{r['mean_nodes']:,.0f}"],
        ],
    )


def sampling() -> str:
    """The time of exact samples, and of a full pass of the network per column."""
    r = _measured("sampling")
    if "sampling" not in r:
        return f"{NOT_YET}\n"
    s = r["sampling"]
    return _table(
        [
            "device",
            "rows",
            "exact sampling",
            "D full passes, 100 proposals per value",
            "times faster",
        ],
        [
            [
                r["device"],
                f"{s['rows']:,}",
                f"{s['exact_seconds']:.1f} s",
                f"{s['plain_seconds']:.1f} s",
                f"{s['ratio']:.1f}",
            ]
        ],
    )


def settings() -> str:
    """The test suite with other instructions, numbers of threads and loads."""
    measured = result("tests/settings")
    header = ["setting", "other busy processes", "passed", "failed", "skipped", "seconds"]
    rows = [
        [
            ", ".join(f"`{k}={v}`" for k, v in r["environment"].items()) or "defaults",
            str(r["busy"]),
            f"{r['passed']:,}",
            str(len(r["failed"])),
            str(r["skipped"]),
            f"{r['seconds']:.0f}",
        ]
        for r in (measured or {}).get("runs", [])
    ]
    table = markdown(header, rows, "Not measured yet: `make test-settings`.")
    if not measured:
        return table
    return table + (
        f"\n{measured['cores']} cores ({measured['capability']}), "
        f"{measured['config']['workers']} tests at a time, commit {measured['commit']}.\n"
    )


TABLES: dict[str, Callable[[], str]] = {
    "exact_scipy": against_scipy,
    "exact_equal": equal_accuracy,
    "exact_agreement": agreement,
    "exact_comb": comb,
    "exact_sampling": sampling,
    "exact_settings": settings,
}
