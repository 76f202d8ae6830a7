-- People who may speak because somebody at the host gave them a code.

-- At most one open code per platform, as a hash.
CREATE TABLE pairing_codes (
    platform    TEXT   NOT NULL PRIMARY KEY,
    hash        TEXT   NOT NULL,
    expires_at  BIGINT NOT NULL,
    -- Wrong codes that were tried while it was open.
    tries       BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE paired (
    platform   TEXT   NOT NULL,
    -- The platform's id of the person.
    person     TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    paired_at  BIGINT NOT NULL,
    PRIMARY KEY (platform, person)
);
