-- Balances read from the chain, by account and token. Times are unix milliseconds.

-- An anchor is a balance at a block, valid while that block is indexed at its height. The fold does not know the indexed
-- blocks, so it keeps as many as a reader may fall back on: the newest 32 of a pair, the newest 4 that were at or below the
-- height accepted on L1 when a later one was read, and the oldest 4, which answers as of a block are based on.
CREATE TABLE {{schema}}.anchors (
  account       text NOT NULL,
  token         text NOT NULL,
  block         bigint NOT NULL,
  block_hash    text NOT NULL,
  -- raw integer below 2^256
  balance       numeric(78) NOT NULL,
  observed_at   bigint NOT NULL,
  -- time of the newest request that a read at this block has answered
  requested_at  bigint NOT NULL,
  PRIMARY KEY (account, token, block, block_hash)
);

-- Contracts that gave no balance at the last read; deleted once they give one.
CREATE TABLE {{schema}}.refusals (
  account       text NOT NULL,
  token         text NOT NULL,
  reason        text NOT NULL,
  block         bigint NOT NULL,
  block_hash    text NOT NULL,
  refused_at    bigint NOT NULL,
  requested_at  bigint NOT NULL,
  PRIMARY KEY (account, token)
);
