-- Counts repairs of tables whose checkpoints stay where they are: answers cached before a repair are not used after it.
ALTER TABLE tds.served RENAME COLUMN mended TO repairs;
