"""Compile the kernels of energies and of ResMADE's first layer for a Hopper GPU, which needs none.

Run by `test_energy.py`.

The interpreter that tests use elsewhere leaves out what only a GPU has.
"""

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from aem.nn.kernels.energy import BACKWARD, FORWARD, INPUTS, PIECES, TOP, Launch
from aem.nn.kernels.energy_kernels import energy_backward, energy_forward, energy_inputs, energy_top
from aem.nn.kernels.layers import SMALL, _layer_forward

HALF, SINGLE = "*bf16", "*fp32"
TYPES = {
    "threshold": "i64",
    "scale": "fp32",
    "multiplier_ptr": "*i32",
    "end_ptr": "*i32",
    "seed_ptr": "*i64",
    **dict.fromkeys(
        ("matrix_ptr", "saved_ptr", "a_ptr", "u_ptr", "above_ptr", "weight_ptr", "active_ptr"), HALF
    ),
    **dict.fromkeys(("slopes_ptr", "last_ptr", "projected_ptr"), HALF),
}


def compile_kernel(kernel: Any, launch: Launch, **constants: Any) -> None:
    """Raises where the compiler does."""
    signature = {
        name: "constexpr"
        if name in constants
        else TYPES.get(name, SINGLE if name.endswith("_ptr") else "i32")
        for name in kernel.arg_names
    }
    if kernel in (energy_top, energy_backward):
        signature["out_ptr"] = HALF
    source = ASTSource(kernel, signature, constexprs=constants)
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def main() -> None:
    """With tensor cores' large tiles and without; both activations; Fourier features and none."""
    for hidden, tanh in ((32, False), (128, False), (128, True)):
        common = {"H": hidden, "TANH": tanh}
        padded = 16 if tanh else 0
        forward, backward = FORWARD[hidden], BACKWARD[hidden]
        compile_kernel(
            energy_forward, forward, **common, PADDED=padded, BLOCKS=2, ROWS=forward.rows,
            PIECES=PIECES[hidden], DROPOUT=True, SAVE=True, NATIVE=True, STAGES=forward.stages,
        )  # fmt: skip
        compile_kernel(
            energy_backward, backward, **common, ROWS=backward.rows, DROPOUT=True, BACKWARDS=tanh,
            NATIVE=True, STAGES=backward.stages,
        )  # fmt: skip
        compile_kernel(energy_top, TOP, **common, ROWS=TOP.rows, BACKWARDS=True)
        compile_kernel(
            energy_inputs, INPUTS, H=hidden, PADDED=padded, TILE=INPUTS.rows, BACKWARDS=tanh,
            NATIVE=True,
        )  # fmt: skip
    tiles = SMALL
    for active in (False, True):
        # The first layer, whose rows have more digits than its weights.
        compile_kernel(
            _layer_forward, Launch(tiles.rows, tiles.warps, tiles.stages), N_UNIT=16, K_UNIT=1,
            ADD=False, SUM=True, ACTIVE=active, TANH=False, DROPOUT=False, ROWS=tiles.rows,
            COLUMNS=tiles.columns, INNER=tiles.inner, STAGES=tiles.stages, EXACT=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
