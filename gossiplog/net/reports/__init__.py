"""What a service tells those who watch it: facts, figures, dials that failed, and whether the log answers. Nothing of the protocol."""
