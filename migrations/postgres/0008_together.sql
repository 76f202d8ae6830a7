-- What adds up to one tick, and whose words it says.

-- The message whose tick it became part of.
ALTER TABLE messages ADD COLUMN merged_into TEXT COLLATE "C";
CREATE INDEX messages_merged ON messages (merged_into) WHERE merged_into IS NOT NULL;
-- Whoever wrote what its author only passes on (JSON).
ALTER TABLE messages ADD COLUMN words_of TEXT COLLATE "C";
-- Its message got more before the program was started: it begins anew.
ALTER TABLE ticks ADD COLUMN grown BIGINT NOT NULL DEFAULT 0;
