"""The data source `gossiplog`: scanning logs and files, streaming a log, and writing a table into one."""
