"""The command line: one file per command, found by name and imported only when it runs.

Data goes to stdout, talk to stderr. Heavy imports stay inside the commands, so that `kldive --help`
is instant.
"""

from workbench.cli.main import main

__all__ = ["main"]
