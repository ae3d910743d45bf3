-- Which NFTs' metadata is to be fetched, and the record of its having been. Lost, it is made again from the read models,
-- and what they do not hold is fetched. Times are unix milliseconds of the observer's clock.
CREATE TABLE tds.nft_fetches (
  token text NOT NULL,
  token_id numeric(78) NOT NULL,
  -- erc721, erc1155; unknown: somebody asked for it before a transfer was seen
  standard text NOT NULL,
  -- failures in a row that count
  failures integer NOT NULL DEFAULT 0,
  -- and times in a row that the attempt could not be made: the node was away
  troubles integer NOT NULL DEFAULT 0,
  -- When to try; moved ahead by whoever has claimed it, and so the mark of the claim; null: fetched, or given up
  next_at bigint,
  -- somebody waits for it since
  asked_at bigint,
  -- who was found to serve it
  host text,
  last_error text,
  -- Written down before it is published, so that after a crash the same message is published and no other.
  message jsonb,
  done_at bigint,
  PRIMARY KEY (token, token_id)
);
CREATE INDEX nft_fetches_due ON tds.nft_fetches (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX nft_fetches_asked ON tds.nft_fetches (next_at) WHERE next_at IS NOT NULL AND asked_at IS NOT NULL;
CREATE INDEX nft_fetches_done ON tds.nft_fetches (done_at) WHERE done_at IS NOT NULL;

-- Those that wait for their backoff are nobody's to take up.
CREATE OR REPLACE VIEW tds.observer_progress AS
  SELECT observer, min(next_at) AS first_due, max(next_at) AS last_due,
    (SELECT max(done_at) FROM tds.observer_attempts d WHERE d.observer = a.observer AND done_at IS NOT NULL) AS done_at
  FROM tds.observer_attempts a WHERE next_at IS NOT NULL GROUP BY observer
  UNION ALL
  SELECT 'nft', min(next_at), max(next_at), (SELECT max(done_at) FROM tds.nft_fetches WHERE done_at IS NOT NULL)
  FROM tds.nft_fetches WHERE next_at IS NOT NULL AND failures = 0 HAVING count(*) > 0;
