"""What a server shows of itself to those who watch it: its facts as they happen, and its peers."""

from .diagnosis import DiagnosisApi
from .facts import follow_facts
from .gather import FactGatherer, GatherApi
from .log_api import NO_GLASS, GlassSettings
from .peers import show_peers

__all__ = ["NO_GLASS", "DiagnosisApi", "FactGatherer", "GatherApi", "GlassSettings", "follow_facts", "show_peers"]
