-- What the ingester works with: leases, cursors, blocks recorded before they are published, repairs. To be backed up.

-- The one chain this installation indexes; a node of another chain is refused.
CREATE TABLE tds.chain (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  chain_id text NOT NULL,
  -- What `network.identified` last said of the node; null until it is in the log.
  announced jsonb
);

CREATE TABLE tds.chunks (
  name text PRIMARY KEY,
  range_start bigint NOT NULL CHECK (range_start >= 0),
  -- null: open-ended, the chunk at the head.
  range_end bigint CHECK (range_end >= range_start),
  -- The next height. Every height of the chunk below it is in the log as accepted, acknowledged by Kafka.
  cursor bigint NOT NULL,
  -- The highest height that is indexed and known to be accepted on L1 (range_start - 1: none), and its hash where known.
  -- Nothing at or below it is ever reverted.
  final_height bigint NOT NULL,
  final_hash text,
  -- Parent hash of the block at range_start: what the chunk below must end in.
  first_parent text,
  -- Blocks that are not recorded, from the cursor to plan_to, may be in the log with these contracts: they are published
  -- with the very same again.
  plan_to bigint NOT NULL DEFAULT -1,
  plan_facts jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'finished')),
  -- `chunk.opened` is in the log.
  opened boolean NOT NULL DEFAULT false,
  -- The lease. Every write says WHERE epoch = mine.
  holder text,
  epoch bigint NOT NULL DEFAULT 0,
  lease_until timestamptz,
  -- No message was ever sent with a higher seq: it is reserved ahead.
  seq_ceiling bigint NOT NULL DEFAULT 0,
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- A height belongs to one chunk for ever; no end means no upper bound.
  CONSTRAINT chunks_disjoint EXCLUDE USING gist (int8range(range_start, range_end, '[]') WITH &&)
);

-- Blocks above the final height of their chunk, one a height, each the child of the one below. Those at or above the
-- cursor may or may not have reached the log: they are settled before anything else is done.
CREATE TABLE tds.recorded_blocks (
  chunk text NOT NULL REFERENCES tds.chunks (name),
  height bigint NOT NULL,
  hash text NOT NULL,
  parent_hash text NOT NULL,
  -- revert: to be taken back; the row goes when Kafka has acknowledged that.
  intent text NOT NULL CHECK (intent IN ('accept', 'revert')),
  -- Every `contracts` map this block may have been published with; the last is the one in force.
  maps jsonb NOT NULL,
  -- The body as zstd-compressed JSON.
  body bytea NOT NULL,
  PRIMARY KEY (chunk, height)
);
ALTER TABLE tds.recorded_blocks ALTER COLUMN body SET STORAGE EXTERNAL;

-- Heights to be reverted and accepted again with better knowledge. Rows stay: their maps tell what may be in the log
-- while the projections are behind.
CREATE TABLE tds.repairs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  height bigint NOT NULL,
  reason text NOT NULL,
  -- Counts how often it was asked for: one that is asked for while it is under way is done again.
  round integer NOT NULL DEFAULT 1,
  -- Every `contracts` map a repair of this height may have published.
  maps jsonb NOT NULL DEFAULT '[]',
  requested_at timestamptz NOT NULL DEFAULT now(),
  done_at timestamptz
);
CREATE UNIQUE INDEX repairs_one_pending ON tds.repairs (height) WHERE done_at IS NULL;
CREATE INDEX repairs_by_height ON tds.repairs (height);
