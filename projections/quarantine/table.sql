-- Events that could not be decoded, messages that could not be read, and their resolution. Times are unix milliseconds.

CREATE TABLE {{schema}}.entries (
  -- `<block hash>:<position>` of an event, `<topic>:<partition>:<offset>` of a message
  id               text PRIMARY KEY,
  kind             text NOT NULL CHECK (kind IN ('event', 'message')),
  -- of the last try
  reason           text NOT NULL,
  -- the first time; of an entry that opened again, the first time since its resolution
  quarantined_at   bigint NOT NULL,
  -- the last time that it failed
  last_tried_at    bigint NOT NULL,
  -- reverted, repaired, skipped; null while it is open
  resolution       text,
  resolved_at      bigint,
  -- of an event
  block            bigint,
  block_hash       text,
  position         bigint,
  transaction_hash text,
  -- {from_address, keys, data}
  event            jsonb,
  -- of a message
  topic            text,
  partition        integer,
  message_offset   text,
  -- its first 64 kB, base64
  value            text
);
CREATE INDEX entries_open ON {{schema}}.entries (kind, reason) WHERE resolution IS NULL;
CREATE INDEX entries_newest ON {{schema}}.entries (quarantined_at DESC, id);
