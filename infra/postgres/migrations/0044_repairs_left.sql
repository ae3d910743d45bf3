-- For the status, also where no more of the repairs may be seen.
CREATE VIEW tds.repairs_left AS
  SELECT count(*) AS pending, min(requested_at) AS oldest FROM tds.repairs WHERE done_at IS NULL;
