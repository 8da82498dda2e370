"""The experiments of the paper (`aem reproduce`), a client of the library."""

from aem.extras import check_installed

check_installed("matplotlib", "reproducing the paper", "paper")
check_installed("PIL", "reproducing the paper", "paper")
