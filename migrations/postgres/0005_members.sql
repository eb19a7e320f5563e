-- Members of a log whose topic names a policy; empty in all others. A row for each control entry, and for each entry of a branch at which the
-- set of control entries before it changes. `n` counts them in the order of insertion. `kept` is NULL for data.

CREATE TABLE members (
    n BIGINT PRIMARY KEY,
    key BYTEA NOT NULL,
    branch INTEGER NOT NULL,
    clock BIGINT NOT NULL,
    view BYTEA NOT NULL,
    kept BYTEA
);

-- Which revocations, by their number among control entries, touch which data.
CREATE TABLE touched (
    key BYTEA NOT NULL,
    control BIGINT NOT NULL,
    PRIMARY KEY (key, control)
);

CREATE INDEX touched_by ON touched (control);

-- Data that is void.
CREATE TABLE void (
    key BYTEA PRIMARY KEY
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
        EXECUTE format('GRANT %s ON members, touched, void TO %s', given.privilege, given.role);
        IF given.privilege = 'INSERT' THEN
            EXECUTE format('GRANT DELETE ON void TO %s', given.role);
        END IF;
    END LOOP;
END $$;
