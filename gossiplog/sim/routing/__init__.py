"""Routers under test: the exact engine, its nodes and links, faults, and attackers."""
