-- What was told of the balances of a block, when that is reverted. A hash that is empty: what was told of the same account
-- and token since has taken its place.
CREATE INDEX webhook_deliveries_by_block ON tds.webhook_deliveries (landed_hash) WHERE event = 'balance.changed';
