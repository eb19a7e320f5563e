"""What every part of the network stands on: ids of protocols, rights and their proof, limits, refusals, and the journal."""
