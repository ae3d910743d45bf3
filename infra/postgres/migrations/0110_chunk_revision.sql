-- Rises with every write of the lease's holder. A holder that finds it lower than it left it knows that PostgreSQL has
-- failed over and lost transactions.
ALTER TABLE tds.chunks ADD COLUMN revision bigint NOT NULL DEFAULT 0;
