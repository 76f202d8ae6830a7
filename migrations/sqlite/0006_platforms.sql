-- Chat platforms: events in the order they came, the posts they speak of, and what adapters remember.

-- The event as it was understood (JSON); NULL where it was not, and for `local`.
ALTER TABLE arrivals ADD COLUMN event TEXT;
-- Order of arrival, over all platforms; 0 for `local`, whose messages are made as they arrive.
ALTER TABLE arrivals ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
-- 'new' until it is applied, then what came of it.
ALTER TABLE arrivals ADD COLUMN state TEXT NOT NULL DEFAULT 'done';
CREATE INDEX arrivals_new ON arrivals (seq) WHERE state = 'new';

CREATE TABLE counters (
    name   TEXT   NOT NULL PRIMARY KEY,
    value  BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('arrivals', 0);

-- One post, whatever events spoke of it.
CREATE TABLE posts (
    -- platform/workspace/channel, encoded like a thread's key.
    channel     TEXT   NOT NULL,
    id          TEXT   NOT NULL,
    -- The key of the conversation it belongs to.
    thread      TEXT   NOT NULL,
    -- What all events together told of it (JSON); NULL for posts of ours.
    told        TEXT,
    -- Posts of one album share it.
    album       TEXT,
    -- The message it became part of.
    message     TEXT,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (channel, id)
);
CREATE INDEX posts_album ON posts (channel, album) WHERE album IS NOT NULL;
CREATE INDEX posts_message ON posts (message);
CREATE INDEX posts_thread ON posts (thread, created_at, id);

-- Files on a platform's servers that a message waits for.
CREATE TABLE remote_files (
    message   TEXT   NOT NULL REFERENCES messages (id),
    position  BIGINT NOT NULL,
    -- As the platform names it (JSON).
    file      TEXT   NOT NULL,
    -- 'wanted', 'here' or 'failed'.
    state     TEXT   NOT NULL DEFAULT 'wanted',
    reason    TEXT,
    attempts  BIGINT NOT NULL DEFAULT 0,
    next_at   BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (message, position)
);
CREATE INDEX remote_files_wanted ON remote_files (next_at) WHERE state = 'wanted';

-- Where an adapter stands in its platform's stream: offsets, sessions.
CREATE TABLE marks (
    platform  TEXT   NOT NULL,
    name      TEXT   NOT NULL,
    value     TEXT   NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (platform, name)
);
