-- When a worker was last heard of, by the database's clock; NULL in rows of older versions.
ALTER TABLE workers ADD COLUMN seen_at BIGINT;
