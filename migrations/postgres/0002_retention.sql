-- Retention: which states can still be gone back to, what a sandbox has mounted, what lies unused.

-- NULL while the state can be gone back to. Its tick stays as evidence.
ALTER TABLE snapshots ADD COLUMN expired_at BIGINT;
-- 1: expired, and no kept state stands on it any more.
ALTER TABLE snapshots ADD COLUMN gone BIGINT NOT NULL DEFAULT 0;
CREATE INDEX snapshots_agent ON snapshots (agent) WHERE gone = 0;

-- JSON list of the layers its sandbox has mounted, found in the transaction of the claim; NULL in
-- rows of older versions.
ALTER TABLE ticks ADD COLUMN lowers TEXT COLLATE "C";

-- Allocated bytes of the folder; NULL until measured.
ALTER TABLE bases ADD COLUMN bytes BIGINT;
-- When an agent was last about to be made on it; NULL in rows of older versions.
ALTER TABLE bases ADD COLUMN used_at BIGINT;
-- 1: its folder was removed; the next agent on its image extracts it again.
ALTER TABLE bases ADD COLUMN gone BIGINT NOT NULL DEFAULT 0;

-- One row: the wall clock as housekeeping last believed it.
CREATE TABLE clock (
    id       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    seen_at  BIGINT NOT NULL
);
