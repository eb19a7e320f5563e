"""Facts about a log's network, in one schema for live processes and the simulator, kept in a ring; and conclusions from them."""

from .fact import Fact, Ring
from .machine_facts import Witness
from .peerings import Peerings

__all__ = ["Fact", "Peerings", "Ring", "Witness"]
