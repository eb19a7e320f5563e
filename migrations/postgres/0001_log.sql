-- The log, in a schema of its own. `seq` is the order of insertion in this replica; keys are 20 bytes and sort in causal order; hashes
-- are 16 bytes. The application's own tables belong into other schemas.

CREATE TABLE log (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    topic TEXT NOT NULL,
    schema_version INTEGER NOT NULL,    -- how many migrations it has had
    program_version TEXT NOT NULL,      -- of the program that last migrated it
    epoch BIGINT NOT NULL DEFAULT 0     -- changes when what is stored was built anew, so that nobody trusts what they remember
);

-- VALUE, byte for byte, with all that a file keeps in tables of their own: here a row more costs 28 bytes, and an index leads to it anyway.
-- What is derived from VALUE is NULL only within the transaction of a repair.
CREATE TABLE entries (
    seq BIGINT PRIMARY KEY,
    clock BIGINT,
    branch INTEGER,
    key BYTEA,
    hash BYTEA,
    value BYTEA NOT NULL
);

-- Level 0 of the tree, without its anchor.
CREATE UNIQUE INDEX entries_by_key ON entries (key);

-- The graph's index: each entry lies on a branch (a chain of parents), and has a clock of its own there.
CREATE UNIQUE INDEX entries_by_position ON entries (branch, clock);

-- The levels above. An anchor's key is empty. The last node of each level changes with every append, which leaves no trace in the index
-- as long as the page has room.
CREATE TABLE nodes (
    level INTEGER NOT NULL,
    key BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (level, key)
) WITH (fillfactor = 70);

CREATE TABLE heads (
    key BYTEA PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Edges to parents on other branches; `reach` is the highest parent_clock of the pair of branches so far, so it never falls.
CREATE TABLE links (
    child_branch INTEGER NOT NULL,
    parent_branch INTEGER NOT NULL,
    child_clock BIGINT NOT NULL,
    parent_clock BIGINT NOT NULL,
    reach BIGINT NOT NULL,
    PRIMARY KEY (child_branch, parent_branch, child_clock, parent_clock)
);

CREATE INDEX links_up ON links (parent_branch, child_branch, reach, child_clock);

CREATE INDEX links_to ON links (parent_branch, parent_clock);

-- Where named followers have got to.
CREATE TABLE cursors (
    name TEXT COLLATE "C" PRIMARY KEY,
    seq BIGINT NOT NULL
);

-- Entries that are valid and that the application refused.
CREATE TABLE quarantine (
    key BYTEA PRIMARY KEY,
    value BYTEA NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL
);
