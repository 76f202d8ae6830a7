-- Buttons that send a file again keep it.

-- Content that the button's file has.
ALTER TABLE buttons ADD COLUMN blob TEXT COLLATE "C";
CREATE INDEX buttons_blob ON buttons (blob) WHERE blob IS NOT NULL;
