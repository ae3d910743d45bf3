-- Runs of `tds verify`. The newest are kept.
CREATE TABLE tds.verify_runs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  started_at timestamptz NOT NULL,
  finished_at timestamptz NOT NULL DEFAULT now(),
  outcome text NOT NULL CHECK (outcome IN ('no differences', 'differences', 'inconclusive')),
  from_height bigint,
  to_height bigint,
  messages bigint NOT NULL DEFAULT 0,
  -- That remain, and before the repair.
  differences integer NOT NULL DEFAULT 0,
  found integer NOT NULL DEFAULT 0,
  repaired_rows bigint NOT NULL DEFAULT 0,
  -- Some of the remaining differences, as sentences.
  first_differences jsonb NOT NULL DEFAULT '[]',
  -- Why it is inconclusive.
  error text
);

-- The blocks that were sampled by all processes.
CREATE TABLE tds.verify_samples (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  since timestamptz NOT NULL DEFAULT now(),
  blocks bigint NOT NULL,
  differences bigint NOT NULL,
  last_height bigint NOT NULL,
  last_at timestamptz NOT NULL DEFAULT now(),
  last_difference_height bigint,
  last_difference_at timestamptz
);
