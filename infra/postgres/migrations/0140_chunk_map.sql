-- The chunks for a database role that may not read leases and contract facts.
CREATE VIEW tds.chunk_map AS
  SELECT name, range_start, range_end, cursor, final_height, status,
    CASE WHEN lease_until > now() THEN holder END AS writer, updated_at
  FROM tds.chunks;
