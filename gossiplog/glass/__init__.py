"""What happens in a log's network as facts: one schema for live processes and the simulator, kept in a ring, and what follows from them."""

from .fact import Fact, Ring
from .machine_facts import Witness
from .peerings import Peerings
from .way import Had, entry_way

__all__ = ["Fact", "Had", "Peerings", "Ring", "Witness", "entry_way"]
