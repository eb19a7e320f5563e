"""Reliable causal broadcast as a sans-IO machine for each log, and the router that all logs of a process share."""
