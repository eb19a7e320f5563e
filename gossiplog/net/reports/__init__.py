"""Reports about a service: facts, figures, failed dials, and whether the log answers. Nothing of the protocol."""
