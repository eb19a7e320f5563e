-- The applications whose tables are made of the log's entries. `behind` is the insertion number up to which they were applied when an entry
-- was stored without them; NULL: none is missing. Version 0: the tables are to be built anew, whatever the application's version is.

CREATE TABLE gossiplog_applications (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    behind INTEGER
) WITHOUT ROWID;

-- Entries of the log that an application could make nothing of.
CREATE TABLE gossiplog_set_aside (
    key BLOB NOT NULL,
    application TEXT NOT NULL,
    kind TEXT NOT NULL,          -- the name of the exception's type
    reason TEXT NOT NULL,
    since REAL NOT NULL,
    PRIMARY KEY (key, application)
) WITHOUT ROWID;
