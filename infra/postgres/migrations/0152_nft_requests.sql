-- NFTs without a known transfer are fetched only when a client requests them.
DROP INDEX tds.nft_fetches_due;
CREATE INDEX nft_fetches_due ON tds.nft_fetches (next_at) WHERE next_at IS NOT NULL AND standard <> 'unknown';

CREATE OR REPLACE VIEW tds.observer_progress AS
  SELECT observer, min(next_at) AS first_due, max(next_at) AS last_due,
    (SELECT max(done_at) FROM tds.observer_attempts d WHERE d.observer = a.observer AND done_at IS NOT NULL) AS done_at
  FROM tds.observer_attempts a WHERE next_at IS NOT NULL GROUP BY observer
  UNION ALL
  SELECT 'nft', min(next_at), max(next_at), (SELECT max(done_at) FROM tds.nft_fetches WHERE done_at IS NOT NULL)
  FROM tds.nft_fetches WHERE next_at IS NOT NULL AND standard <> 'unknown' AND failures = 0 HAVING count(*) > 0;
