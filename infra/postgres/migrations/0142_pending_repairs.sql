-- Pending repairs for a database role that may not read the contract facts of repairs.
CREATE VIEW tds.pending_repairs AS
  SELECT height, reason, requested_at, attempts, next_try_at FROM tds.repairs WHERE done_at IS NULL;
