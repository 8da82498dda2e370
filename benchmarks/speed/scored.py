"""A process that scores rows of a model on request, which `scoring.py` measures.

    python benchmarks/speed/scored.py MODEL ROWS.npy

Each line on standard input is a tolerance and a number of rows; each line on standard output is an
answer in JSON. It imports the library from PYTHONPATH, in this version or an older one.
"""

import json
import sys
import time

import numpy as np
import torch

from aem import Quadrature, TableModel


def main() -> None:
    """Load the model and answer until the input ends."""
    table = TableModel.load(sys.argv[1])
    every = torch.from_numpy(np.load(sys.argv[2]).astype(np.float64))
    for line in sys.stdin:
        tolerance, count = line.split()
        rows, settings = every[: int(count)], Quadrature(tolerance=float(tolerance))
        started = time.process_time()
        scores = table.scores(rows, settings)
        seconds = time.process_time() - started
        answer = {
            "seconds": seconds,
            "nodes": scores.nodes.sum(-1).tolist(),
            "log_density": scores.log_prob.sum(-1).tolist(),
            "error": scores.error.sum(-1).tolist(),
            "unconverged": int((~scores.converged).any(-1).sum()),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
