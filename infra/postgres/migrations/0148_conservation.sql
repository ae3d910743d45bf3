-- Whether the balance changes of every token sum to zero: the last look at all of them.
CREATE TABLE tds.conservation (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  checked_at timestamptz NOT NULL DEFAULT now(),
  -- How long it took: the next one follows after a multiple of it.
  seconds double precision NOT NULL,
  to_height bigint NOT NULL,
  tokens bigint NOT NULL,
  -- [{token_address, sum}]: the sum as decimal text
  nonzero jsonb NOT NULL
);
