-- How far an observer has read the log. Its work is idempotent, so an offset may go back.
CREATE TABLE tds.observer_positions (
  observer text NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  -- a topic that was deleted and created again is another log
  topic_id text NOT NULL,
  next_offset bigint NOT NULL,
  PRIMARY KEY (observer, topic, partition)
);

-- Tasks of the observers. Rows stay after their task is done, so that a replayed block causes no second observation.
-- Times are unix milliseconds of the observers' clock.
CREATE TABLE tds.observer_attempts (
  observer text NOT NULL,
  subject text NOT NULL,
  task jsonb NOT NULL,
  -- The seq of the message that caused the task: a repair with other facts repeats it.
  facts text NOT NULL,
  revision bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  -- When to try; a claim moves it ahead and is identified by it; null: done
  next_at bigint,
  last_error text,
  -- Stored before it is published, so that after a crash the same message is published.
  message jsonb,
  done_at bigint,
  PRIMARY KEY (observer, subject)
);
CREATE INDEX observer_attempts_due ON tds.observer_attempts (observer, next_at) WHERE next_at IS NOT NULL;
