-- Working state of the projections. The tables of a read model are created when its build is opened.

-- One set of tables of one version of a projection. Builds are numbered per projection, over all its versions.
CREATE TABLE tds.builds (
  projection text NOT NULL,
  build integer NOT NULL,
  version integer NOT NULL,
  -- SHA-256 of table.sql without comments and white space.
  shape_hash text NOT NULL,
  state text NOT NULL CHECK (state IN ('building', 'serving', 'retired')),
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (projection, build)
);
CREATE UNIQUE INDEX builds_one_served ON tds.builds (projection) WHERE state = 'serving';

-- A single row with the served tables and schemas, so that a swap of several tables is atomic for every reader.
CREATE TABLE tds.served (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  -- placeholder -> name of the ClickHouse table
  tables jsonb NOT NULL,
  -- projection -> Postgres schema
  schemas jsonb NOT NULL
);
INSERT INTO tds.served (tables, schemas) VALUES ('{}', '{}');

-- The next offset of each partition for each build. Moved by compare-and-set only.
CREATE TABLE tds.checkpoints (
  projection text NOT NULL,
  build integer NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  -- The topic's id: a topic that was deleted and created again is another log.
  topic_id text NOT NULL,
  next_offset bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (projection, build, topic, partition)
);

-- A partition on which a build has halted, with the message that halted it.
CREATE TABLE tds.projection_halts (
  projection text NOT NULL,
  build integer NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  message_offset bigint NOT NULL,
  reason text NOT NULL,
  halted_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (projection, build, topic, partition)
);

-- Messages that an operator has told a projection to skip; kept, so that a rebuild skips them too.
CREATE TABLE tds.skips (
  projection text NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  message_offset bigint NOT NULL,
  skipped_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (projection, topic, partition, message_offset)
);
