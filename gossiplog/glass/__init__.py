"""What happens in a log's network as facts: one schema for live processes and the simulator, kept in a ring, and what follows from them."""

from .fact import Fact
from .peerings import Peerings
from .ring import Ring
from .way import Had, entry_way
from .witness import Witness

__all__ = ["Fact", "Had", "Peerings", "Ring", "Witness", "entry_way"]
