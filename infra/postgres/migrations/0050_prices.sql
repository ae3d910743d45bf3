-- What the observers of prices and of the token list know of their own. Lost, it is found out again, and what was
-- published is published once more, which changes no read model. Times are unix milliseconds of the observers' clock.

-- One row a token that was ever to be read.
CREATE TABLE tds.price_watch (
  token text PRIMARY KEY,
  -- read every PRICE_POLL_SECONDS; others when something asks
  common boolean NOT NULL,
  -- when to read it next; null: not before something asks
  due_at bigint,
  -- one process reads it
  claimed_until bigint NOT NULL DEFAULT 0,
  read_at bigint,
  -- the last one published, in decimal
  price text,
  observed_at bigint,
  published_at bigint,
  -- a jump that waits to be confirmed
  held_price text,
  held_observed_at bigint,
  held_since bigint,
  -- why the last reading was not published; null: it was, or said nothing new
  refusal text,
  refusal_detail text
);
CREATE INDEX price_watch_due ON tds.price_watch (due_at) WHERE due_at IS NOT NULL;

-- History that is in the log: points of one token, in steps of so many milliseconds, over one window of time.
CREATE TABLE tds.price_backfilled (
  token text NOT NULL,
  source text NOT NULL,
  step_ms bigint NOT NULL,
  window_start bigint NOT NULL,
  points integer NOT NULL,
  -- the newest one, with which the next window goes on
  last_price text,
  last_observed_at bigint,
  PRIMARY KEY (token, source, step_ms, window_start)
);

-- What the token list has last said of each token and was published. An operator may say otherwise of a token: that
-- stays until the list changes its own mind.
CREATE TABLE tds.token_list (
  token text PRIMARY KEY,
  verified boolean NOT NULL,
  common boolean NOT NULL,
  public boolean NOT NULL,
  logo text
);
