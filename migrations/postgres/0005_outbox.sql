-- The outbox looks for the oldest delivery of each thread.
CREATE INDEX deliveries_owed_thread ON deliveries (thread, created_at, id) WHERE state = 'owed';
