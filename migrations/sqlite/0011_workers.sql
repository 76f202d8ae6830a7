-- Several workers may share one database: each is bound to its own place.

ALTER TABLE workers ADD COLUMN machine_id TEXT;
ALTER TABLE workers ADD COLUMN data_dir TEXT;
-- The engine it has used; NULL until one answered.
ALTER TABLE workers ADD COLUMN engine_id TEXT;
-- `local` where it keeps the queue to itself, else `shared`.
ALTER TABLE workers ADD COLUMN queue TEXT;

-- What one start of one worker does at a time for all: it has the name as long as its row in
-- `workers` has this epoch.
CREATE TABLE holds (
    name    TEXT   NOT NULL PRIMARY KEY,
    worker  TEXT   NOT NULL,
    epoch   BIGINT NOT NULL
);

-- Whose reader it is; NULL is one of before.
ALTER TABLE pins ADD COLUMN worker TEXT;
ALTER TABLE pins ADD COLUMN epoch BIGINT;
