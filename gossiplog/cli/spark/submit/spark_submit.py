"""The program for spark-submit: `spark-submit [options of Spark] spark_submit.py verify app.db -o checked`.

It is run as a program, not as a module, so it cannot use relative imports.
"""

import sys

from gossiplog.cli.app import root


def main(arguments: list[str] | None = None) -> None:
    """Run `gossiplog spark` with these arguments, by default those of the program, and exit with its exit code."""
    root.main(["spark", *(sys.argv[1:] if arguments is None else arguments)], prog_name="gossiplog")


if __name__ == "__main__":
    main()
