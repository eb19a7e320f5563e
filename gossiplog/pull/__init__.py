"""How a pull is made: one machine over reconciliation and sync by trees, for streams, simulated streams and two logs of a process."""
