-- The sketch of the set of keys, as it was when insertion number `seq` was the last: up to one row, that may be missing or old. What came
-- later is added when it is needed, and without it the sketch is built from the entries.

CREATE TABLE sketch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL,
    symbols BYTEA NOT NULL
);

-- A role that keeps cursors may keep this. One that may not works without: it remembers the sketch for as long as it runs.
DO $$
DECLARE
    granted RECORD;
BEGIN
    FOR granted IN
        SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee, a.privilege_type AS privilege
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'cursors'::regclass AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE')
    LOOP
        EXECUTE format('GRANT %s ON sketch TO %s', granted.privilege, granted.grantee);
    END LOOP;
END
$$;
