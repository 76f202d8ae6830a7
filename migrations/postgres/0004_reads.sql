-- Reads look at what they show, not at all there is.

-- The last 8 digits of an id, last first: people name agents and ticks by the end of their ids.
CREATE INDEX agents_end ON agents
    ((substr(id, 36, 1) || substr(id, 35, 1) || substr(id, 34, 1) || substr(id, 33, 1)
     || substr(id, 32, 1) || substr(id, 31, 1) || substr(id, 30, 1) || substr(id, 29, 1)))
    WHERE removed_at IS NULL;
CREATE INDEX ticks_end ON ticks
    ((substr(id, 36, 1) || substr(id, 35, 1) || substr(id, 34, 1) || substr(id, 33, 1)
     || substr(id, 32, 1) || substr(id, 31, 1) || substr(id, 30, 1) || substr(id, 29, 1)));

CREATE INDEX agents_living ON agents (id) WHERE removed_at IS NULL;
CREATE INDEX agents_forked ON agents (forked_from);
CREATE INDEX messages_agent ON messages (agent, id);
CREATE INDEX messages_parked_of ON messages (agent) WHERE outcome = 'parked';
-- Also of states that are gone.
CREATE INDEX snapshots_maker ON snapshots (agent);
-- The newest of all, which housekeeping asks for after each tick.
CREATE INDEX layers_created ON layers (created_at);
