-- What is counted while an event is applied or a reply is written is counted in few rows.

-- The channel of a post's conversation, with a slash behind it: its key less the last part.
ALTER TABLE posts ADD COLUMN place TEXT COLLATE "C"
    GENERATED ALWAYS AS (rtrim(thread, replace(thread, '/', ''))) STORED;
-- What became a message, in its conversation and in its channel.
CREATE INDEX posts_said ON posts (thread, created_at, id)
    WHERE told IS NOT NULL AND message IS NOT NULL;
CREATE INDEX posts_said_in ON posts (place, created_at, id)
    WHERE told IS NOT NULL AND message IS NOT NULL;

-- How many of the lost posts were so before a person asked for the part again.
ALTER TABLE parts ADD COLUMN forgiven BIGINT NOT NULL DEFAULT 0;
UPDATE parts SET forgiven = lost - lost % 4;
