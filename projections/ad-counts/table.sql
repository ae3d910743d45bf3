-- How often each ad was shown and clicked. The ids of counted events are kept for 48 h of the log's time: within it, an
-- event that is in the log twice counts once.
CREATE TABLE {{schema}}.ad_counts (
  ad_id       bigint PRIMARY KEY,
  impressions bigint NOT NULL,
  clicks      bigint NOT NULL
);
CREATE TABLE {{schema}}.ad_events (
  id          text PRIMARY KEY,
  -- unix milliseconds
  observed_at bigint NOT NULL
);
CREATE INDEX ad_events_by_time ON {{schema}}.ad_events (observed_at);
