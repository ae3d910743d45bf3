-- One table of checkpoints for every consumer of the log. Moved by compare-and-set only.
ALTER TABLE tds.checkpoints RENAME COLUMN projection TO consumer;
-- 0 for a consumer that has no builds.
ALTER TABLE tds.checkpoints ALTER COLUMN build SET DEFAULT 0;

INSERT INTO tds.checkpoints (consumer, topic, partition, topic_id, next_offset, updated_at)
  SELECT 'observe-' || observer, topic, partition, topic_id, next_offset, updated_at FROM tds.observer_positions
  UNION ALL
  SELECT 'dispatch-' || matcher, topic, partition, topic_id, next_offset, updated_at FROM tds.dispatch_positions;
DROP VIEW tds.observer_readings;
DROP TABLE tds.observer_positions, tds.dispatch_positions;

-- Checkpoints of projections, with the state of their builds.
CREATE VIEW tds.projection_checkpoints AS
  SELECT projection, build, version, state, topic, partition, topic_id, next_offset, updated_at
  FROM tds.checkpoints JOIN tds.builds USING (build) WHERE consumer = projection;
