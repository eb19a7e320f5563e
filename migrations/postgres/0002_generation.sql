-- What those who follow the log from outside compare with what they remember: whether it is the same log still, and how far its insertion
-- numbers went. `seq_used` is raised when entries are taken out, so that their numbers are never given to others. They are columns of a
-- table that is there already, for which all roles have their rights.

ALTER TABLE log
    ADD COLUMN generation TEXT NOT NULL DEFAULT substr(md5(random()::text || clock_timestamp()::text), 1, 16),
    ADD COLUMN seq_used BIGINT NOT NULL DEFAULT 0;
