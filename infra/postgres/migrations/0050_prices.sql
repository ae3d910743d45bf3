-- Working state of the observers of prices and of the token list. If it is lost, prices are read again and published
-- again, which changes no read model. Times are unix milliseconds of the observers' clock.

-- One row per token whose price was ever to be read.
CREATE TABLE tds.price_watch (
  token text PRIMARY KEY,
  -- read every PRICE_POLL_SECONDS; others on request
  common boolean NOT NULL,
  -- when to read it next; null: on the next request
  due_at bigint,
  -- lease of the process that reads it
  claimed_until bigint NOT NULL DEFAULT 0,
  read_at bigint,
  -- the last published price, in decimal
  price text,
  observed_at bigint,
  published_at bigint,
  -- a price jump that is not confirmed yet
  held_price text,
  held_observed_at bigint,
  held_since bigint,
  -- why the last reading was not published; null: it was, or it was unchanged
  refusal text,
  refusal_detail text
);
CREATE INDEX price_watch_due ON tds.price_watch (due_at) WHERE due_at IS NOT NULL;

-- History that is in the log: points of one token with a step in milliseconds over one window of time.
CREATE TABLE tds.price_backfilled (
  token text NOT NULL,
  source text NOT NULL,
  step_ms bigint NOT NULL,
  window_start bigint NOT NULL,
  points integer NOT NULL,
  -- the newest point, where the next window begins
  last_price text,
  last_observed_at bigint,
  PRIMARY KEY (token, source, step_ms, window_start)
);

-- What the token list last said of each token, as published. What an operator has set for a token stays until the list
-- changes.
CREATE TABLE tds.token_list (
  token text PRIMARY KEY,
  verified boolean NOT NULL,
  common boolean NOT NULL,
  public boolean NOT NULL,
  logo text
);
