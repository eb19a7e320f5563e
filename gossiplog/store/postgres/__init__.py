"""A log in a PostgreSQL database, which any number of processes read and write."""
