-- Several workers may share one database: each is bound to its own place.

ALTER TABLE workers ADD COLUMN machine_id TEXT COLLATE "C";
ALTER TABLE workers ADD COLUMN data_dir TEXT COLLATE "C";
-- The engine it has used; NULL until one answered.
ALTER TABLE workers ADD COLUMN engine_id TEXT COLLATE "C";
-- `local` where it keeps the queue to itself, else `shared`.
ALTER TABLE workers ADD COLUMN queue TEXT COLLATE "C";

-- What one start of one worker does at a time for all: it has the name as long as its row in
-- `workers` has this epoch.
CREATE TABLE holds (
    name    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    worker  TEXT COLLATE "C" NOT NULL,
    epoch   BIGINT NOT NULL
);

-- Whose reader it is; NULL is one of before.
ALTER TABLE pins ADD COLUMN worker TEXT COLLATE "C";
ALTER TABLE pins ADD COLUMN epoch BIGINT;
