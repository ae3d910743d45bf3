-- What the projections work with. None of it is a read model: the tables of a build are made when it is opened.

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

-- The one row that names what is served, so that swapping several tables is one moment for every reader.
CREATE TABLE tds.served (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  -- placeholder -> name of the ClickHouse table
  tables jsonb NOT NULL,
  -- projection -> Postgres schema
  schemas jsonb NOT NULL
);
INSERT INTO tds.served (tables, schemas) VALUES ('{}', '{}');

-- The next offset a build wants of each partition. Moved by compare-and-set only.
CREATE TABLE tds.checkpoints (
  projection text NOT NULL,
  build integer NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  -- The topic's own id: a topic that is deleted and made again is another log.
  topic_id text NOT NULL,
  next_offset bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (projection, build, topic, partition)
);

-- A partition that a build cannot go on with, at the message that stops it.
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

-- Messages that an operator has told a projection to pass over; kept, so that a rebuild passes over them too.
CREATE TABLE tds.skips (
  projection text NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  message_offset bigint NOT NULL,
  skipped_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (projection, topic, partition, message_offset)
);
