"""The command `gossiplog`: it parses arguments, calls the library and prints the results."""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line with this process's arguments and leave with its exit code."""
    _replace_closed_streams()
    try:
        from .app import root
    except KeyboardInterrupt:
        # Ctrl-C came before the code that reports it was imported.
        raise SystemExit(130) from None
    root.main(prog_name="gossiplog")


def _replace_closed_streams() -> None:
    """Replace standard streams that were closed at the start, so that no log's file gets the descriptor of one.

    Input is empty, writing data is an error, and messages are dropped.
    """
    for name, flags, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode))  # noqa: SIM115, PTH123  (open until the end of the process)
