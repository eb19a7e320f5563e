"""Plans over many entries: reading and writing a log, the commit, questions about the graph, and the checks of `fsck`."""
