-- When each API key was last used. Deleted keys stay; they are never queried.
CREATE TABLE {{schema}}.key_use (
  key_id       bigint PRIMARY KEY,
  -- unix milliseconds
  last_used_at bigint NOT NULL
);
