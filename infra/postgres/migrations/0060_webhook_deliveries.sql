-- Deliveries, sent and due. Working state, not a read model: a rebuild repeats no delivery, and what is lost here is
-- lost. Times are unix milliseconds of the dispatcher's clock.

-- One row per delivery. Its id is derived from its subject, so that nothing is sent under two ids.
CREATE TABLE tds.webhook_deliveries (
  id uuid PRIMARY KEY,
  webhook_id bigint NOT NULL,
  event text NOT NULL,
  -- the body of every attempt
  body text NOT NULL,
  is_test boolean NOT NULL DEFAULT false,
  created_at bigint NOT NULL,
  status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'success', 'failed', 'dead')),
  -- attempts that have ended, manual ones included
  attempts integer NOT NULL DEFAULT 0,
  -- those made by the schedule
  scheduled_attempts integer NOT NULL DEFAULT 0,
  -- the last attempt was manual
  manual boolean NOT NULL DEFAULT false,
  -- the next scheduled attempt; null: none is left
  scheduled_at bigint,
  -- a manual attempt that was requested and has not ended; null: none
  manual_at bigint,
  -- when to try next; during an attempt, when its lease ends; null: nothing to do
  due_at bigint,
  -- who makes the running attempt; null: none runs
  lease uuid,
  response_code integer,
  -- text, 16 KB at most; null: none, or not text
  response_body text,
  error text,
  duration_ms integer,
  last_attempt_at bigint,
  -- Identifies a transfer in whatever block includes it (transaction, event in it, item, token, from, to, value).
  subject uuid,
  -- The block that includes it. A later one has the higher seq.
  landed_hash text,
  landed_seq bigint,
  -- That block was reverted, and no block has included the transfer since.
  reverted_height bigint
);
CREATE INDEX webhook_deliveries_listed ON tds.webhook_deliveries (webhook_id, created_at DESC, id);
CREATE INDEX webhook_deliveries_by_status ON tds.webhook_deliveries (webhook_id, status, created_at DESC, id);
CREATE INDEX webhook_deliveries_due ON tds.webhook_deliveries (webhook_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_by_subject ON tds.webhook_deliveries (subject) WHERE subject IS NOT NULL;
CREATE INDEX webhook_deliveries_reverted ON tds.webhook_deliveries (reverted_height) WHERE reverted_height IS NOT NULL;
CREATE INDEX webhook_deliveries_by_age ON tds.webhook_deliveries USING brin (created_at);

-- One row per webhook that ever had a delivery. The next ones are chosen from here, so that an endpoint with many due
-- deliveries is considered once.
CREATE TABLE tds.webhook_endpoints (
  webhook_id bigint PRIMARY KEY,
  -- the least due_at of its deliveries; null: nothing is due, or the webhook is not active
  due_at bigint,
  -- Deliveries that failed for good in a row since this activation of the webhook.
  activation bigint NOT NULL DEFAULT 0,
  consecutive_dead integer NOT NULL DEFAULT 0,
  last_delivery_at bigint
);
CREATE INDEX webhook_endpoints_due ON tds.webhook_endpoints (due_at) WHERE due_at IS NOT NULL;

-- How far each matcher has read the log, moved in the transaction that creates its deliveries.
CREATE TABLE tds.dispatch_positions (
  matcher text NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  -- a topic that was deleted and created again is another log
  topic_id text NOT NULL,
  next_offset bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (matcher, topic, partition)
);

-- The newest accepted blocks, one per height: they show whether a new fork is ten blocks past a transfer that it lacks.
CREATE TABLE tds.dispatch_blocks (
  height bigint PRIMARY KEY,
  hash text NOT NULL,
  seq bigint NOT NULL
);

-- The last price of each token: the base of a threshold.
CREATE TABLE tds.dispatch_prices (
  token text PRIMARY KEY,
  price numeric NOT NULL,
  observed_at bigint NOT NULL
);
