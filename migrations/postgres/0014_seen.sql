-- When a worker was last heard of, by the database's clock: now for those that are there, NULL in rows that older versions add.
ALTER TABLE workers ADD COLUMN seen_at BIGINT;
UPDATE workers SET seen_at = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT);
