"""Every test here fails if the network logged a fault of ours."""

from network_support import no_faults

__all__ = ["no_faults"]
