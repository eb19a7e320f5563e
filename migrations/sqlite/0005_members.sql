-- Members of a log whose topic names a policy; empty in all others. A row for each control entry, and for each entry of a branch at which the
-- set of control entries before it changes. `n` counts them in the order of insertion. `kept` is NULL for data.

CREATE TABLE gossiplog_members (
    n INTEGER PRIMARY KEY,
    key BLOB NOT NULL,
    branch INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    view BLOB NOT NULL,
    kept BLOB
);

-- Which revocations, by their number among control entries, touch which data.
CREATE TABLE gossiplog_touched (
    key BLOB NOT NULL,
    control INTEGER NOT NULL,
    PRIMARY KEY (key, control)
) WITHOUT ROWID;

CREATE INDEX gossiplog_touched_by ON gossiplog_touched (control);

-- Data that is void.
CREATE TABLE gossiplog_void (
    key BLOB PRIMARY KEY
) WITHOUT ROWID;
