-- The log. `seq` is the order of insertion in this replica; keys are 20 bytes and sort in causal order; hashes are 16 bytes.
-- The application's own tables may live in the same file under any name that does not begin with gossiplog_.

CREATE TABLE gossiplog_log (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    topic TEXT NOT NULL,
    version TEXT NOT NULL          -- of the program that last migrated the file
);

-- VALUE, byte for byte. Values lie in order of arrival, so that appending touches the last page alone.
CREATE TABLE gossiplog_entries (
    seq INTEGER PRIMARY KEY,
    value BLOB NOT NULL
);

-- Level 0 of the tree, without its anchor; also the index by key. A row has no overflow page.
CREATE TABLE gossiplog_leaves (
    key BLOB PRIMARY KEY,
    hash BLOB NOT NULL,
    seq INTEGER NOT NULL,
    branch INTEGER NOT NULL
) WITHOUT ROWID;

-- The levels above. An anchor's key is the empty blob.
CREATE TABLE gossiplog_nodes (
    level INTEGER NOT NULL,
    key BLOB NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (level, key)
) WITHOUT ROWID;

CREATE TABLE gossiplog_heads (
    key BLOB PRIMARY KEY
) WITHOUT ROWID;

-- The graph's index: each entry lies on a branch (a chain of parents), and has a clock of its own there.
CREATE TABLE gossiplog_positions (
    branch INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (branch, clock)
) WITHOUT ROWID;

-- Edges to parents on other branches; `reach` is the highest parent_clock of the pair of branches so far, so it never falls.
CREATE TABLE gossiplog_links (
    child_branch INTEGER NOT NULL,
    parent_branch INTEGER NOT NULL,
    child_clock INTEGER NOT NULL,
    parent_clock INTEGER NOT NULL,
    reach INTEGER NOT NULL,
    PRIMARY KEY (child_branch, parent_branch, child_clock, parent_clock)
) WITHOUT ROWID;

CREATE INDEX gossiplog_links_up ON gossiplog_links (parent_branch, child_branch, reach, child_clock);

CREATE INDEX gossiplog_links_to ON gossiplog_links (parent_branch, parent_clock);

-- Where named followers have got to.
CREATE TABLE gossiplog_cursors (
    name TEXT PRIMARY KEY,
    seq INTEGER NOT NULL
) WITHOUT ROWID;

-- Entries that are valid and that the application refused.
CREATE TABLE gossiplog_quarantine (
    key BLOB PRIMARY KEY,
    value BLOB NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL,
    since REAL NOT NULL
) WITHOUT ROWID;
