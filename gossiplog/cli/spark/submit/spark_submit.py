"""What spark-submit is given: `spark-submit [options of Spark] spark_submit.py verify app.db -o checked`.

It is run as a program of its own, so it imports by the package's name.
"""

import sys

from gossiplog.cli.app import root


def main(arguments: list[str] | None = None) -> None:
    """Run `gossiplog spark` with these arguments, those of the program without any; leaves with its exit code."""
    root.main(["spark", *(sys.argv[1:] if arguments is None else arguments)], prog_name="gossiplog")


if __name__ == "__main__":
    main()
