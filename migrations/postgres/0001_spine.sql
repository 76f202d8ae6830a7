-- The spine: what arrives, who runs it, what it left behind, what is owed.
-- As for SQLite, in an order in which every table is there before it is referred to. Text is compared
-- by its bytes, as SQLite does it: ids and keys have one order on both.

-- One row: who this installation is and which versions may open it.
CREATE TABLE installation (
    id               TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    machine_id       TEXT COLLATE "C" NOT NULL,
    engine_id        TEXT COLLATE "C",
    data_dir         TEXT COLLATE "C" NOT NULL,
    -- The oldest program version that may open this database.
    minimum_version  TEXT COLLATE "C" NOT NULL,
    written_by       TEXT COLLATE "C" NOT NULL,
    created_at       BIGINT NOT NULL
);

-- A worker lives in its locked data dir; each start is a new epoch.
CREATE TABLE workers (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    epoch       BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL
);

-- The slots' content in one image.
CREATE TABLE bases (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    image       TEXT COLLATE "C" NOT NULL UNIQUE,
    uid         BIGINT NOT NULL,
    gid         BIGINT NOT NULL,
    notes       TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    -- The name by which a registry gives the image again, NULL where none can.
    registry    TEXT COLLATE "C",
    created_at  BIGINT NOT NULL
);

-- A state: base + the layers of its ancestors + its own.
CREATE TABLE snapshots (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    agent       TEXT COLLATE "C" NOT NULL,
    base        TEXT COLLATE "C" NOT NULL,
    parent      TEXT COLLATE "C",
    tick        TEXT COLLATE "C",
    -- NULL where the tick changed nothing.
    layer       TEXT COLLATE "C",
    -- The agent program's session, valid for exactly these files.
    session     TEXT COLLATE "C",
    created_at  BIGINT NOT NULL
);
CREATE INDEX snapshots_parent ON snapshots (parent);
CREATE INDEX snapshots_tick ON snapshots (tick);
CREATE INDEX snapshots_layer ON snapshots (layer);

CREATE TABLE agents (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    profile      TEXT COLLATE "C" NOT NULL,
    -- The reference its image was named by, NULL where the profile's holds.
    sandbox      TEXT COLLATE "C",
    image        TEXT COLLATE "C" NOT NULL,
    base         TEXT COLLATE "C" NOT NULL REFERENCES bases (id),
    head         TEXT COLLATE "C" REFERENCES snapshots (id),
    -- Fences late writers: + 1 per claim.
    generation   BIGINT NOT NULL DEFAULT 0,
    forked_from  TEXT COLLATE "C",
    created_at   BIGINT NOT NULL,
    removed_at   BIGINT
);

-- One conversation and the agent it is bound to.
CREATE TABLE threads (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    key       TEXT COLLATE "C" NOT NULL UNIQUE,
    agent     TEXT COLLATE "C" NOT NULL REFERENCES agents (id),
    next_seq  BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX threads_agent ON threads (agent);

-- Immutable platform events, stored before they are understood.
CREATE TABLE arrivals (
    thread       TEXT COLLATE "C" NOT NULL,
    key          TEXT COLLATE "C" NOT NULL,
    raw          BYTEA   NOT NULL,
    -- NULL: kept and counted, starts nothing.
    message      TEXT COLLATE "C",
    received_at  BIGINT NOT NULL,
    PRIMARY KEY (thread, key)
);

CREATE TABLE messages (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    agent         TEXT COLLATE "C" NOT NULL REFERENCES agents (id),
    thread        TEXT COLLATE "C" NOT NULL REFERENCES threads (id),
    seq           BIGINT NOT NULL,
    author_id     TEXT COLLATE "C" NOT NULL,
    author_name   TEXT COLLATE "C" NOT NULL,
    text          TEXT COLLATE "C" NOT NULL,
    sandbox       TEXT COLLATE "C",
    created_at    BIGINT NOT NULL,
    claimable_at  BIGINT NOT NULL,
    -- Interrupted ticks so far; drains and a missing engine are none.
    attempts      BIGINT NOT NULL DEFAULT 0,
    -- The thread was told once that it waits for an engine or image.
    wait_noticed  BIGINT NOT NULL DEFAULT 0,
    -- NULL while open; else the one visible outcome.
    outcome       TEXT COLLATE "C",
    reason        TEXT COLLATE "C",
    settled_at    BIGINT,
    UNIQUE (thread, seq)
);
CREATE INDEX messages_open ON messages (agent, created_at, seq) WHERE outcome IS NULL;
CREATE INDEX messages_parked ON messages (created_at) WHERE outcome = 'parked';

CREATE TABLE ticks (
    id                TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    agent             TEXT COLLATE "C" NOT NULL REFERENCES agents (id),
    message           TEXT COLLATE "C" NOT NULL REFERENCES messages (id),
    retry_of          TEXT COLLATE "C",
    worker            TEXT COLLATE "C" NOT NULL,
    epoch             BIGINT NOT NULL,
    generation        BIGINT NOT NULL,
    phase             TEXT COLLATE "C" NOT NULL,
    -- NULL while open.
    outcome           TEXT COLLATE "C",
    changes           TEXT COLLATE "C",
    notice            TEXT COLLATE "C",
    exit_code         BIGINT,
    cancel_requested  BIGINT NOT NULL DEFAULT 0,
    progress          TEXT COLLATE "C",
    -- 'none', or 'possible' before anything but a model call leaves.
    effects           TEXT COLLATE "C" NOT NULL DEFAULT 'none',
    before            TEXT COLLATE "C",
    after             TEXT COLLATE "C",
    image             TEXT COLLATE "C",
    -- The layer id its upper folder will be sealed as.
    layer             TEXT COLLATE "C" NOT NULL,
    -- JSON of everything it may have created on the engine; removed_at is the proof of removal.
    names             TEXT COLLATE "C" NOT NULL,
    removed_at        BIGINT,
    notes             TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    phase_ms          TEXT COLLATE "C" NOT NULL DEFAULT '[0,0,0,0,0]',
    output_bytes      BIGINT NOT NULL DEFAULT 0,
    layer_bytes       BIGINT NOT NULL DEFAULT 0,
    layer_inodes      BIGINT NOT NULL DEFAULT 0,
    started_at        BIGINT NOT NULL,
    ended_at          BIGINT
);
-- One tick at a time per agent (promise P2), also for a program that forgets to ask.
CREATE UNIQUE INDEX ticks_one_open ON ticks (agent) WHERE outcome IS NULL;
CREATE INDEX ticks_agent ON ticks (agent, id);
CREATE INDEX ticks_message ON ticks (message, id);
CREATE INDEX ticks_unremoved ON ticks (id) WHERE removed_at IS NULL;
CREATE INDEX ticks_layer ON ticks (layer);

CREATE TABLE layers (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- Of the packed form; NULL until packed.
    digest      TEXT COLLATE "C",
    bytes       BIGINT NOT NULL,
    inodes      BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);

-- Another representation of a snapshot's chain: one layer in place of all.
CREATE TABLE merges (
    snapshot    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    layer       TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX merges_layer ON merges (layer);

-- Replies owed to threads.
CREATE TABLE deliveries (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    thread        TEXT COLLATE "C" NOT NULL,
    message       TEXT COLLATE "C" NOT NULL,
    tick          TEXT COLLATE "C",
    -- 'answer' or 'notice'.
    kind          TEXT COLLATE "C" NOT NULL,
    text          TEXT COLLATE "C" NOT NULL,
    -- 'owed', 'sent' or 'parked'.
    state         TEXT COLLATE "C" NOT NULL DEFAULT 'owed',
    attempts      BIGINT NOT NULL DEFAULT 0,
    next_at       BIGINT NOT NULL DEFAULT 0,
    platform_id   TEXT COLLATE "C",
    reason        TEXT COLLATE "C",
    created_at    BIGINT NOT NULL,
    sent_at       BIGINT
);
CREATE INDEX deliveries_owed ON deliveries (next_at) WHERE state = 'owed';
CREATE INDEX deliveries_message ON deliveries (message);

CREATE TABLE delivery_files (
    delivery  TEXT COLLATE "C" NOT NULL,
    position  BIGINT NOT NULL,
    name      TEXT COLLATE "C" NOT NULL,
    blob      TEXT COLLATE "C" NOT NULL,
    size      BIGINT NOT NULL,
    PRIMARY KEY (delivery, position)
);
CREATE INDEX delivery_files_blob ON delivery_files (blob);

-- Who reads layers right now and keeps them from being removed.
CREATE TABLE pins (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    layer       TEXT COLLATE "C" NOT NULL,
    reason      TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX pins_layer ON pins (layer);

-- Heads that were left behind and moved to: rollback and forward.
CREATE TABLE head_moves (
    agent       TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    from_snapshot TEXT COLLATE "C",
    to_snapshot   TEXT COLLATE "C",
    reason      TEXT COLLATE "C" NOT NULL
);
CREATE INDEX head_moves_agent ON head_moves (agent, at);
