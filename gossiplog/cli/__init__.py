"""The command `gossiplog`: it parses arguments, calls the library and prints what comes back."""

__all__ = ["main"]


def main() -> None:
    """Run the command line with this process's arguments and leave with its exit code."""
    try:
        from .app import root
    except KeyboardInterrupt:
        # Ctrl-C came before there was anything that says so.
        raise SystemExit(130) from None
    root.main(prog_name="gossiplog")
