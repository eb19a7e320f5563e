"""How a pull is made: one machine over reconciliation and the sync by trees, for streams, simulated ones and two logs of a process."""
