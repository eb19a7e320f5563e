"""A network of real processes on one machine, whose links can be cut, delayed and made lossy: `gossiplog testnet`."""

from .testnet import Testnet, describe, open_testnet

__all__ = ["Testnet", "describe", "open_testnet"]
