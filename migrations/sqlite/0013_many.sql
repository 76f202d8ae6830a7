-- What housekeeping asks every few seconds costs the same with a hundred thousand agents.

CREATE INDEX agents_image ON agents (image) WHERE removed_at IS NULL;
