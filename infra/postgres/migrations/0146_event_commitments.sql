-- A block of this chain was found with events that match the commitment in its header. From then on a block that does not
-- match is refused; before, the node may give commitments of another kind.
ALTER TABLE tds.chain ADD COLUMN commitments_hold boolean NOT NULL DEFAULT false;
