-- People who may speak because somebody at the host gave them a code.

-- At most one open code per platform, as a hash.
CREATE TABLE pairing_codes (
    platform    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    hash        TEXT COLLATE "C" NOT NULL,
    expires_at  BIGINT NOT NULL,
    -- Wrong codes that were tried while it was open.
    tries       BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE paired (
    platform   TEXT COLLATE "C" NOT NULL,
    -- The platform's id of the person.
    person     TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    paired_at  BIGINT NOT NULL,
    PRIMARY KEY (platform, person)
);
