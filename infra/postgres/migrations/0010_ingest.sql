-- Working state of the ingester: leases, cursors, blocks recorded before they are published, repairs. Back it up.

-- The one chain this installation indexes; a node of another chain is refused.
CREATE TABLE tds.chain (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  chain_id text NOT NULL,
  -- The last published `network.identified`; null until it is in the log.
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
  -- Blocks that are not recorded, from the cursor to plan_to, may be in the log with these contract facts; a retry publishes
  -- them with the same facts.
  plan_to bigint NOT NULL DEFAULT -1,
  plan_facts jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'finished')),
  -- `chunk.opened` is in the log.
  opened boolean NOT NULL DEFAULT false,
  -- The lease. Every write is fenced by its epoch.
  holder text,
  epoch bigint NOT NULL DEFAULT 0,
  lease_until timestamptz,
  -- No message has a higher seq: seqs are reserved before they are used.
  seq_ceiling bigint NOT NULL DEFAULT 0,
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- A height belongs to one chunk; no end means no upper bound.
  CONSTRAINT chunks_disjoint EXCLUDE USING gist (int8range(range_start, range_end, '[]') WITH &&)
);

-- Blocks above the final height of their chunk, one per height, each the child of the one below. Those at or above the
-- cursor may or may not be in the log; they are published again or reverted before anything else.
CREATE TABLE tds.recorded_blocks (
  chunk text NOT NULL REFERENCES tds.chunks (name),
  height bigint NOT NULL,
  hash text NOT NULL,
  parent_hash text NOT NULL,
  -- revert: to be reverted; the row is deleted when Kafka has acknowledged the revert.
  intent text NOT NULL CHECK (intent IN ('accept', 'revert')),
  -- Every contracts map this block may have been published with; the last one is current.
  maps jsonb NOT NULL,
  -- The body as zstd-compressed JSON.
  body bytea NOT NULL,
  PRIMARY KEY (chunk, height)
);
ALTER TABLE tds.recorded_blocks ALTER COLUMN body SET STORAGE EXTERNAL;

-- Heights whose block is to be reverted and published again. Rows stay: their maps list what may be in the log while the
-- projections lag.
CREATE TABLE tds.repairs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  height bigint NOT NULL,
  reason text NOT NULL,
  -- Number of requests: a repair requested again while it runs is repeated.
  round integer NOT NULL DEFAULT 1,
  -- Every contracts map that a repair of this height may have published.
  maps jsonb NOT NULL DEFAULT '[]',
  requested_at timestamptz NOT NULL DEFAULT now(),
  done_at timestamptz
);
CREATE UNIQUE INDEX repairs_one_pending ON tds.repairs (height) WHERE done_at IS NULL;
CREATE INDEX repairs_by_height ON tds.repairs (height);
