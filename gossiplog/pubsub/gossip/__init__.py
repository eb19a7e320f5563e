"""The parts of gossipsub: meshes and their upkeep, gossip, scores, fan-out peers, back-offs, peer exchange."""
