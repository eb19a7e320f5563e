"""Run one fuzz target, or all: `python -m tests.fuzz.run TARGET --runs N [--engine plain|atheris]`.

The plain engine mutates the seeds and needs nothing; atheris adds coverage where it is installed (`pip install atheris`). A failure prints
the input in hex, the seed and the run, and exits 1; `--input HEX` runs that one input again.
"""

import argparse
import gc
import random
import sys
import time
import traceback
from types import FunctionType

from .mutate import mutate
from .targets import TARGETS, Target

__all__ = ["main"]

_SHOWN_EVERY_S = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description="Fuzz a decoder of GossipLog.")
    parser.add_argument("target", choices=[target.name for target in TARGETS] + ["all"])
    parser.add_argument("--runs", type=int, default=100_000, help="inputs a target")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers")
    parser.add_argument("--engine", choices=["plain", "atheris"], default="plain")
    parser.add_argument("--input", metavar="HEX", help="run this one input and nothing else")
    options = parser.parse_args(arguments)
    targets = [target for target in TARGETS if options.target in (target.name, "all")]
    if options.input is not None:
        for target in targets:
            target.function(bytes.fromhex(options.input))
        return 0
    if options.engine == "atheris":
        if len(targets) != 1:
            parser.error("atheris runs one target in a process; name it")
        return run_atheris(targets[0], options.runs, options.seed)
    return max(run_plain(target, options.runs, options.seed) for target in targets)


def run_plain(target: Target, runs: int, seed: int) -> int:
    """Run mutated seeds, the same ones for the same seed; return the exit code."""
    rng = random.Random(f"{target.name} {seed}")
    started, shown = time.process_time(), time.monotonic()
    for number in range(runs):
        data = mutate(rng, target.seeds)
        try:
            target.function(data)
        except Exception:
            traceback.print_exc()
            print(f"{target.name}: failed in run {number} of seed {seed}")
            print(f"python -m tests.fuzz.run {target.name} --input {data.hex() or '00'}")
            return 1
        if number % 256 == 0 and time.monotonic() - shown > _SHOWN_EVERY_S:
            shown = time.monotonic()
            print(f"{target.name}: {number:,} of {runs:,}", file=sys.stderr)
    cpu = time.process_time() - started
    print(f"{target.name}: {runs:,} inputs, seed {seed}, {cpu:.1f} s CPU, no failure")
    return 0


def run_atheris(target: Target, runs: int, seed: int) -> int:
    """Hand the target to atheris; return the exit code, if atheris returns at all."""
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: `pip install atheris`, or use `--engine plain`", file=sys.stderr)
        return 2
    # Ours alone: instrumenting the libraries as well takes twenty seconds a target, and leads into them.
    for function in [found for found in gc.get_objects() if isinstance(found, FunctionType)]:
        if (function.__module__ or "").startswith("gossiplog."):
            atheris.instrument_func(function)
    rng = random.Random(seed)

    def run_one(data: bytes) -> None:
        target.function(data)

    def from_seeds(data: bytes, size_max: int, seed: int) -> bytes:
        # Half of the inputs come from our own seeds, so that a run is useful without a corpus on the disk.
        corpus = target.seeds if rng.random() < 0.5 or not data else (data,)
        return mutate(random.Random(seed), corpus)[:size_max]

    atheris.Setup([sys.argv[0], f"-runs={runs}", f"-seed={seed or 1}", "-max_len=4096"], run_one, custom_mutator=from_seeds)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
