-- The layer store: what is in it, and who has what is not yet.

-- Bytes of the packed form; NULL until packed.
ALTER TABLE layers ADD COLUMN packed BIGINT;
-- Since when it is in the layer store; NULL: the only copy lies with its holder.
ALTER TABLE layers ADD COLUMN stored_at BIGINT;
-- The worker that made it; NULL in rows of older versions and of imports.
ALTER TABLE layers ADD COLUMN holder TEXT;
CREATE INDEX layers_owed ON layers (id) WHERE stored_at IS NULL;

ALTER TABLE bases ADD COLUMN digest TEXT;
ALTER TABLE bases ADD COLUMN packed BIGINT;
ALTER TABLE bases ADD COLUMN stored_at BIGINT;

-- SHA-256 and bytes of the transcript in the layer store; NULL: it lies with the tick's worker.
ALTER TABLE ticks ADD COLUMN transcript TEXT;
ALTER TABLE ticks ADD COLUMN transcript_bytes BIGINT;
CREATE INDEX ticks_transcript_owed ON ticks (worker, id) WHERE transcript IS NULL AND outcome IS NOT NULL;

-- One row: what the mark in the layer store has to say.
CREATE TABLE store (
    id          TEXT   NOT NULL PRIMARY KEY,
    created_at  BIGINT NOT NULL
);

-- Objects that no row needs, to be removed after a time of grace.
CREATE TABLE doomed (
    object      TEXT   NOT NULL PRIMARY KEY,
    at          BIGINT NOT NULL,
    -- Since when somebody is about to remove it.
    removing_at BIGINT
);
