-- Events that could not be decoded, messages that could not be read, and their resolution. Times are unix milliseconds.

CREATE TABLE {{schema}}.entries (
  -- `<block hash>:<position>` of an event, `<topic>:<partition>:<offset>` of a message
  id               text PRIMARY KEY,
  kind             text NOT NULL CHECK (kind IN ('event', 'message')),
  reason           text NOT NULL,
  quarantined_at   bigint NOT NULL,
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
