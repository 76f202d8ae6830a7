-- The spine: what arrives, who runs it, what it left behind, what is owed.
-- Columns are BIGINT, TEXT and BLOB only (one code base for two databases); times are unix ms.

-- One row: who this installation is and which versions may open it.
CREATE TABLE installation (
    id               TEXT   NOT NULL PRIMARY KEY,
    machine_id       TEXT   NOT NULL,
    engine_id        TEXT,
    data_dir         TEXT   NOT NULL,
    -- The oldest program version that may open this database.
    minimum_version  TEXT   NOT NULL,
    written_by       TEXT   NOT NULL,
    created_at       BIGINT NOT NULL
);

-- A worker lives in its locked data dir; each start is a new epoch.
CREATE TABLE workers (
    id          TEXT   NOT NULL PRIMARY KEY,
    epoch       BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL
);

CREATE TABLE agents (
    id           TEXT   NOT NULL PRIMARY KEY,
    profile      TEXT   NOT NULL,
    -- The reference its image was named by, NULL where the profile's holds.
    sandbox      TEXT,
    image        TEXT   NOT NULL,
    base         TEXT   NOT NULL REFERENCES bases (id),
    head         TEXT   REFERENCES snapshots (id),
    -- Fences late writers: + 1 per claim.
    generation   BIGINT NOT NULL DEFAULT 0,
    forked_from  TEXT,
    created_at   BIGINT NOT NULL,
    removed_at   BIGINT
);

-- One conversation and the agent it is bound to.
CREATE TABLE threads (
    id        TEXT   NOT NULL PRIMARY KEY,
    key       TEXT   NOT NULL UNIQUE,
    agent     TEXT   NOT NULL REFERENCES agents (id),
    next_seq  BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX threads_agent ON threads (agent);

-- Immutable platform events, stored before they are understood.
CREATE TABLE arrivals (
    thread       TEXT   NOT NULL,
    key          TEXT   NOT NULL,
    raw          BLOB   NOT NULL,
    -- NULL: kept and counted, starts nothing.
    message      TEXT,
    received_at  BIGINT NOT NULL,
    PRIMARY KEY (thread, key)
);

CREATE TABLE messages (
    id            TEXT   NOT NULL PRIMARY KEY,
    agent         TEXT   NOT NULL REFERENCES agents (id),
    thread        TEXT   NOT NULL REFERENCES threads (id),
    seq           BIGINT NOT NULL,
    author_id     TEXT   NOT NULL,
    author_name   TEXT   NOT NULL,
    text          TEXT   NOT NULL,
    sandbox       TEXT,
    created_at    BIGINT NOT NULL,
    claimable_at  BIGINT NOT NULL,
    -- Interrupted ticks so far; drains and a missing engine are none.
    attempts      BIGINT NOT NULL DEFAULT 0,
    -- The thread was told once that it waits for an engine or image.
    wait_noticed  BIGINT NOT NULL DEFAULT 0,
    -- NULL while open; else the one visible outcome.
    outcome       TEXT,
    reason        TEXT,
    settled_at    BIGINT,
    UNIQUE (thread, seq)
);
CREATE INDEX messages_open ON messages (agent, created_at, seq) WHERE outcome IS NULL;
CREATE INDEX messages_parked ON messages (created_at) WHERE outcome = 'parked';

CREATE TABLE ticks (
    id                TEXT   NOT NULL PRIMARY KEY,
    agent             TEXT   NOT NULL REFERENCES agents (id),
    message           TEXT   NOT NULL REFERENCES messages (id),
    retry_of          TEXT,
    worker            TEXT   NOT NULL,
    epoch             BIGINT NOT NULL,
    generation        BIGINT NOT NULL,
    phase             TEXT   NOT NULL,
    -- NULL while open.
    outcome           TEXT,
    changes           TEXT,
    notice            TEXT,
    exit_code         BIGINT,
    cancel_requested  BIGINT NOT NULL DEFAULT 0,
    progress          TEXT,
    -- 'none', or 'possible' before anything but a model call leaves.
    effects           TEXT   NOT NULL DEFAULT 'none',
    before            TEXT,
    after             TEXT,
    image             TEXT,
    -- The layer id its upper folder will be sealed as.
    layer             TEXT   NOT NULL,
    -- JSON of everything it may have created on the engine; removed_at is the proof of removal.
    names             TEXT   NOT NULL,
    removed_at        BIGINT,
    notes             TEXT   NOT NULL DEFAULT '[]',
    phase_ms          TEXT   NOT NULL DEFAULT '[0,0,0,0,0]',
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

-- The slots' content in one image.
CREATE TABLE bases (
    id          TEXT   NOT NULL PRIMARY KEY,
    image       TEXT   NOT NULL UNIQUE,
    uid         BIGINT NOT NULL,
    gid         BIGINT NOT NULL,
    notes       TEXT   NOT NULL DEFAULT '[]',
    -- The name by which a registry gives the image again, NULL where none can.
    registry    TEXT,
    created_at  BIGINT NOT NULL
);

CREATE TABLE layers (
    id          TEXT   NOT NULL PRIMARY KEY,
    -- Of the packed form; NULL until packed.
    digest      TEXT,
    bytes       BIGINT NOT NULL,
    inodes      BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);

-- A state: base + the layers of its ancestors + its own.
CREATE TABLE snapshots (
    id          TEXT   NOT NULL PRIMARY KEY,
    agent       TEXT   NOT NULL,
    base        TEXT   NOT NULL,
    parent      TEXT,
    tick        TEXT,
    -- NULL where the tick changed nothing.
    layer       TEXT,
    -- The agent program's session, valid for exactly these files.
    session     TEXT,
    created_at  BIGINT NOT NULL
);
CREATE INDEX snapshots_parent ON snapshots (parent);
CREATE INDEX snapshots_tick ON snapshots (tick);
CREATE INDEX snapshots_layer ON snapshots (layer);

-- Another representation of a snapshot's chain: one layer in place of all.
CREATE TABLE merges (
    snapshot    TEXT   NOT NULL PRIMARY KEY,
    layer       TEXT   NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX merges_layer ON merges (layer);

-- Replies owed to threads.
CREATE TABLE deliveries (
    id            TEXT   NOT NULL PRIMARY KEY,
    thread        TEXT   NOT NULL,
    message       TEXT   NOT NULL,
    tick          TEXT,
    -- 'answer' or 'notice'.
    kind          TEXT   NOT NULL,
    text          TEXT   NOT NULL,
    -- 'owed', 'sent' or 'parked'.
    state         TEXT   NOT NULL DEFAULT 'owed',
    attempts      BIGINT NOT NULL DEFAULT 0,
    next_at       BIGINT NOT NULL DEFAULT 0,
    platform_id   TEXT,
    reason        TEXT,
    created_at    BIGINT NOT NULL,
    sent_at       BIGINT
);
CREATE INDEX deliveries_owed ON deliveries (next_at) WHERE state = 'owed';
CREATE INDEX deliveries_message ON deliveries (message);

CREATE TABLE delivery_files (
    delivery  TEXT   NOT NULL,
    position  BIGINT NOT NULL,
    name      TEXT   NOT NULL,
    blob      TEXT   NOT NULL,
    size      BIGINT NOT NULL,
    PRIMARY KEY (delivery, position)
);
CREATE INDEX delivery_files_blob ON delivery_files (blob);

-- Who reads layers right now and keeps them from being removed.
CREATE TABLE pins (
    id          TEXT   NOT NULL PRIMARY KEY,
    layer       TEXT   NOT NULL,
    reason      TEXT   NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX pins_layer ON pins (layer);

-- Heads that were left behind and moved to: rollback and forward.
CREATE TABLE head_moves (
    agent       TEXT   NOT NULL,
    at          BIGINT NOT NULL,
    from_snapshot TEXT,
    to_snapshot   TEXT,
    reason      TEXT   NOT NULL
);
CREATE INDEX head_moves_agent ON head_moves (agent, at);
