-- Files that people bring: uploaded first, named by a message second.

-- What was uploaded. A message may name it until housekeeping forgets it; one that a message names
-- is not forgotten.
CREATE TABLE uploads (
    blob         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    size         BIGINT NOT NULL,
    uploaded_at  BIGINT NOT NULL
);

-- The files of a message, as its agent gets them.
CREATE TABLE message_files (
    message   TEXT COLLATE "C" NOT NULL REFERENCES messages (id),
    position  BIGINT NOT NULL,
    name      TEXT COLLATE "C" NOT NULL,
    blob      TEXT COLLATE "C" NOT NULL,
    size      BIGINT NOT NULL,
    PRIMARY KEY (message, position)
);
CREATE INDEX message_files_blob ON message_files (blob);
