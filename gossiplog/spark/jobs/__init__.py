"""The jobs whole: read, compute, publish, report."""
