-- The sketch of the set of keys, as it was when insertion number `seq` was the last: up to one row, that may be missing or old. What came
-- later is added when it is needed, and without it the sketch is built from the entries.

CREATE TABLE gossiplog_sketch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    symbols BLOB NOT NULL
);
