-- NFTs whose metadata is to be fetched, and those fetched. If it is lost, it is restored from the read models, and what
-- they lack is fetched. Times are unix milliseconds of the observer's clock.
CREATE TABLE tds.nft_fetches (
  token text NOT NULL,
  token_id numeric(78) NOT NULL,
  -- erc721, erc1155; unknown: requested before a transfer was seen
  standard text NOT NULL,
  -- consecutive failures that count
  failures integer NOT NULL DEFAULT 0,
  -- consecutive attempts that could not be made: the node was unavailable
  troubles integer NOT NULL DEFAULT 0,
  -- When to try; a claim moves it ahead and is identified by it; null: fetched, or given up
  next_at bigint,
  -- since when a client waits for it
  asked_at bigint,
  -- the host that serves it
  host text,
  last_error text,
  -- Stored before it is published, so that after a crash the same message is published.
  message jsonb,
  done_at bigint,
  PRIMARY KEY (token, token_id)
);
CREATE INDEX nft_fetches_due ON tds.nft_fetches (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX nft_fetches_asked ON tds.nft_fetches (next_at) WHERE next_at IS NOT NULL AND asked_at IS NOT NULL;
CREATE INDEX nft_fetches_done ON tds.nft_fetches (done_at) WHERE done_at IS NOT NULL;

-- Tasks in backoff are not in the queue.
CREATE OR REPLACE VIEW tds.observer_progress AS
  SELECT observer, min(next_at) AS first_due, max(next_at) AS last_due,
    (SELECT max(done_at) FROM tds.observer_attempts d WHERE d.observer = a.observer AND done_at IS NOT NULL) AS done_at
  FROM tds.observer_attempts a WHERE next_at IS NOT NULL GROUP BY observer
  UNION ALL
  SELECT 'nft', min(next_at), max(next_at), (SELECT max(done_at) FROM tds.nft_fetches WHERE done_at IS NOT NULL)
  FROM tds.nft_fetches WHERE next_at IS NOT NULL AND failures = 0 HAVING count(*) > 0;
