"""The paper and its experiments, a client of the library: `aem reproduce` and the records behind it."""

from aem.extras import check_installed

check_installed("matplotlib", "reproducing the paper", "paper")
check_installed("PIL", "reproducing the paper", "paper")
