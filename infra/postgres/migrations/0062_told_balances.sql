-- Notifications about balances at a block, needed when it is reverted. An empty hash: a later notification about the same
-- account and token has replaced this one.
CREATE INDEX webhook_deliveries_by_block ON tds.webhook_deliveries (landed_hash) WHERE event = 'balance.changed';
