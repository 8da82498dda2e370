"""`python -m aem.cli` is `aem`."""

from aem.cli import main

main()
