-- A store gets all that is here when it is first found to be ours.

-- When its mark was first seen in it; NULL: it may lack what rows say it has.
ALTER TABLE store ADD COLUMN marked_at BIGINT;
UPDATE store SET marked_at = created_at;
