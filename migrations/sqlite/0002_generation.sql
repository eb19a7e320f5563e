-- What those who follow the log from outside compare with what they remember: whether it is the same log still, and how far its insertion
-- numbers went. `seq_used` is raised when entries are taken out, so that their numbers are never given to others.

CREATE TABLE gossiplog_generation (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    seq_used INTEGER NOT NULL
);

INSERT INTO gossiplog_generation VALUES (1, lower(hex(randomblob(8))), 0);
