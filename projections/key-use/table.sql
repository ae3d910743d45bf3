-- When each API key was last used. A key that was deleted may still be here: nobody asks for it.
CREATE TABLE {{schema}}.key_use (
  key_id       bigint PRIMARY KEY,
  -- unix milliseconds
  last_used_at bigint NOT NULL
);
