-- The applications whose tables are made of the log's entries. `behind` is the insertion number up to which they were applied when an entry
-- was stored without them; NULL: none is missing. Version 0: the tables are to be built anew, whatever the application's version is.
-- `changes` tells other processes that what they remember of the row is out of date.

CREATE TABLE applications (
    name TEXT COLLATE "C" PRIMARY KEY,
    version INTEGER NOT NULL,
    behind BIGINT,
    changes BIGINT NOT NULL DEFAULT 1
);

-- Entries of the log that an application could make nothing of.
CREATE TABLE set_aside (
    key BYTEA NOT NULL,
    application TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,                 -- the name of the exception's type
    reason TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (key, application)
);

-- Whoever may write entries, or read them, may do so here as well.
DO $$
DECLARE given RECORD;
BEGIN
    FOR given IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role, a.privilege_type AS privilege
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'entries'::regclass AND a.privilege_type IN ('SELECT', 'INSERT') AND a.grantee <> c.relowner
    LOOP
        IF given.privilege = 'SELECT' THEN
            EXECUTE format('GRANT SELECT ON applications, set_aside TO %s', given.role);
        ELSE
            EXECUTE format('GRANT INSERT, UPDATE ON applications TO %s', given.role);
            EXECUTE format('GRANT INSERT, DELETE ON set_aside TO %s', given.role);
        END IF;
    END LOOP;
END $$;
