"""A log in a SQLite file: one connection that writes, a few that read, each in a thread of its own."""
