"""Helpers for trio: nurseries that end with a block, a cheap sleep, ordered results of concurrent work, iteration over pages, spans."""
