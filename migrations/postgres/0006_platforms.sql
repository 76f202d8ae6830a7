-- Chat platforms: events in the order they came, the posts they speak of, and what adapters remember.

-- The event as it was understood (JSON); NULL where it was not, and for `local`.
ALTER TABLE arrivals ADD COLUMN event TEXT COLLATE "C";
-- Order of arrival, over all platforms; 0 for `local`, whose messages are made as they arrive.
ALTER TABLE arrivals ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
-- 'new' until it is applied, then what came of it.
ALTER TABLE arrivals ADD COLUMN state TEXT COLLATE "C" NOT NULL DEFAULT 'done';
CREATE INDEX arrivals_new ON arrivals (seq) WHERE state = 'new';
CREATE INDEX arrivals_old ON arrivals (received_at) WHERE seq > 0;

CREATE TABLE counters (
    name   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value  BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('arrivals', 0);

-- One post, whatever events spoke of it.
CREATE TABLE posts (
    -- platform/workspace/channel, encoded like a thread's key.
    channel     TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    -- The key of the conversation it belongs to.
    thread      TEXT COLLATE "C" NOT NULL,
    -- What all events together told of it (JSON); NULL for posts of ours.
    told        TEXT COLLATE "C",
    -- Posts of one album share it.
    album       TEXT COLLATE "C",
    -- The message it became part of.
    message     TEXT COLLATE "C",
    -- Its author took it back, perhaps before anything else of it came.
    deleted     BIGINT NOT NULL DEFAULT 0,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (channel, id)
);
CREATE INDEX posts_album ON posts (channel, album) WHERE album IS NOT NULL;
CREATE INDEX posts_message ON posts (message);
CREATE INDEX posts_nobodys ON posts (created_at)
    WHERE message IS NULL AND (told IS NOT NULL OR deleted = 1);
CREATE INDEX posts_thread ON posts (thread, created_at, id);

-- Files on a platform's servers that a message waits for.
CREATE TABLE remote_files (
    message   TEXT COLLATE "C" NOT NULL REFERENCES messages (id),
    position  BIGINT NOT NULL,
    -- As the platform names it (JSON).
    file      TEXT COLLATE "C" NOT NULL,
    -- 'wanted', 'here' or 'failed'.
    state     TEXT COLLATE "C" NOT NULL DEFAULT 'wanted',
    reason    TEXT COLLATE "C",
    attempts  BIGINT NOT NULL DEFAULT 0,
    next_at   BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (message, position)
);
CREATE INDEX remote_files_wanted ON remote_files (next_at) WHERE state = 'wanted';

-- Chats that have a new id keep the rights of the one they had.
CREATE TABLE moved_channels (
    -- The id it has and the one it began with, each platform/workspace/channel.
    channel   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    began_as  TEXT COLLATE "C" NOT NULL
);

-- Where an adapter stands in its platform's stream: offsets, sessions.
CREATE TABLE marks (
    platform  TEXT COLLATE "C" NOT NULL,
    name      TEXT COLLATE "C" NOT NULL,
    value     TEXT COLLATE "C" NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (platform, name)
);

-- What a delivery is made of: rendered once, never again.
CREATE TABLE parts (
    delivery    TEXT COLLATE "C" NOT NULL REFERENCES deliveries (id),
    position    BIGINT NOT NULL,
    -- 'text' or 'file'.
    kind        TEXT COLLATE "C" NOT NULL,
    -- A text in the platform's words, or the file (JSON).
    content     TEXT COLLATE "C" NOT NULL,
    -- Content of a file, kept as long as this row is there.
    blob        TEXT COLLATE "C",
    -- 'prepared', 'asked' (its post may stand or not), 'placed' (its post stands), 'sent' or 'parked'.
    state       TEXT COLLATE "C" NOT NULL DEFAULT 'prepared',
    -- The platform's id of its post.
    post        TEXT COLLATE "C",
    -- Posts it had before, which somebody removed.
    lost        BIGINT NOT NULL DEFAULT 0,
    -- What the platform calls a file that it has and does not show yet.
    staged      TEXT COLLATE "C",
    -- When its post was first asked for, while it is not known whether that was done.
    asked_at    BIGINT,
    -- When the last edit was asked for of which it is not known whether it was done.
    unsure_at   BIGINT,
    reason      TEXT COLLATE "C",
    PRIMARY KEY (delivery, position)
);

CREATE INDEX parts_blob ON parts (blob) WHERE blob IS NOT NULL;

-- What people see of a message that has no answer yet.
CREATE TABLE progress (
    message    TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES messages (id),
    -- NULL while it is not known whether it stands.
    post       TEXT COLLATE "C",
    asked_at   BIGINT NOT NULL,
    -- What it says, and since when.
    shown      TEXT COLLATE "C" NOT NULL,
    shown_at   BIGINT NOT NULL,
    unsure_at  BIGINT
);

-- Buttons that were shown: the first decision wins.
CREATE TABLE buttons (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    thread      TEXT COLLATE "C" NOT NULL REFERENCES threads (id),
    -- What it does (JSON).
    action      TEXT COLLATE "C" NOT NULL,
    -- Buttons of one question share it.
    question    TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    pressed_at  BIGINT,
    pressed_by  TEXT COLLATE "C"
);
CREATE INDEX buttons_question ON buttons (question);
CREATE INDEX buttons_old ON buttons (created_at);

-- Buttons that a delivery shows (JSON).
ALTER TABLE deliveries ADD COLUMN buttons TEXT COLLATE "C";
CREATE INDEX deliveries_parked ON deliveries (thread) WHERE state = 'parked';

-- Commands that were given in threads: done beside the lanes, each once.
CREATE TABLE orders (
    -- Deliveries that answer it name it as their message.
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    thread      TEXT COLLATE "C" NOT NULL REFERENCES threads (id),
    -- Who gave it (JSON).
    author      TEXT COLLATE "C" NOT NULL,
    -- What (JSON).
    command     TEXT COLLATE "C" NOT NULL,
    -- 'new', 'begun' or 'done'.
    state       TEXT COLLATE "C" NOT NULL DEFAULT 'new',
    created_at  BIGINT NOT NULL
);
CREATE INDEX orders_open ON orders (created_at) WHERE state != 'done';
CREATE INDEX orders_done ON orders (created_at) WHERE state = 'done';
