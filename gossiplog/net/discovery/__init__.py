"""Finding peers and staying connected with enough of them: bootstrap lists, what peers say about each other, and Kademlia."""

from .book import AddressBook
from .discovery import Discovery
from .table import RoutingTable, Walk

__all__ = ["AddressBook", "Discovery", "RoutingTable", "Walk"]
