"""A log on a real server: who may do what, what happens when it goes away, and many processes at once."""
