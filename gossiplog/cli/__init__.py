"""The command `gossiplog`: it parses arguments, calls the library and prints what comes back."""

__all__ = ["main"]


def main() -> None:
    """Run the command line with this process's arguments and leave with its exit code."""
    from .app import root

    root.main(prog_name="gossiplog")
