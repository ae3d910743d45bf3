-- How far an observer has read the log. Its work is done once whatever it reads twice, so a position may go back.
CREATE TABLE tds.observer_positions (
  observer text NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  -- a topic that is deleted and made again is another log
  topic_id text NOT NULL,
  next_offset bigint NOT NULL,
  PRIMARY KEY (observer, topic, partition)
);

-- What observers have to find out, and the record of having found it out: rows stay, so that nothing is observed again
-- because a block is replayed. Times are unix milliseconds of the observers' clock.
CREATE TABLE tds.observer_attempts (
  observer text NOT NULL,
  subject text NOT NULL,
  task jsonb NOT NULL,
  -- The subject is observed again when a repair (its seq is the revision) says other facts of it.
  facts text NOT NULL,
  revision bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  -- When to try; moved ahead by whoever has claimed it, and so the mark of the claim; null: done
  next_at bigint,
  last_error text,
  -- Written down before it is published, so that after a crash the same message is published and no other.
  message jsonb,
  done_at bigint,
  PRIMARY KEY (observer, subject)
);
CREATE INDEX observer_attempts_due ON tds.observer_attempts (observer, next_at) WHERE next_at IS NOT NULL;
