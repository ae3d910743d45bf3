-- The transfers of NFTs to and from each account, by NFT, newest first. None for the zero address: it holds no burned
-- NFT, and every mint would be a transfer from it.
CREATE TABLE IF NOT EXISTS {{nft_moves}} (
  account FixedString(32),
  token FixedString(32),
  token_id UInt256,
  block_desc UInt32,     -- 0xffffffff - height
  position_desc UInt32,  -- 0xffffffff - position of the event in the block
  item_desc UInt32,      -- 0xffffffff - item in a batch event
  leg UInt8,             -- 1: out (from), 2: in (to), 3: both, a transfer to oneself
  kind LowCardinality(String),
  nft UInt256,           -- of nft_places
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (account, token, token_id, block_desc, position_desc, item_desc)
SETTINGS index_granularity = 512;

-- The positions of each NFT's transfers: tells of ten thousand NFTs at once whether they were transferred since. One
-- number stands for contract and id, in the order of the ids, so that consecutive ids are in few granules.
CREATE TABLE IF NOT EXISTS {{nft_places}} (
  nft UInt256,
  block_desc UInt32,
  position_desc UInt32,
  item_desc UInt32,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (nft, block_desc, position_desc, item_desc)
SETTINGS index_granularity = 512;
