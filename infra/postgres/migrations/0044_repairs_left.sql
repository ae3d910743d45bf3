-- The number of repairs, for a database role that may not read the repairs themselves.
CREATE VIEW tds.repairs_left AS
  SELECT count(*) AS pending, min(requested_at) AS oldest FROM tds.repairs WHERE done_at IS NULL;
