"""The parts of episub: membership by HyParView, the tree by Plumtree, and round trips to neighbours."""
