import { topics } from '../../schemas/topics.ts';
import type { TokensMessage } from '../../schemas/messages/tokens.ts';
import { storableOrNull } from '../../schemas/text.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

/**
 * Metadata and listing of each token. All messages about a token are in one partition, so of two of a kind the one with
 * the higher offset is the later, and it wins whichever is folded first.
 */
export const tokens: PostgresProjection<TokensMessage> = {
  kind: 'postgres',
  name: 'tokens',
  version: 1,
  topic: { ...topics.tokens, minBytes: 100_000 },
  ddl: tableSql(import.meta.url),
  async fold(tx, message, { offset, schema }) {
    switch (message.type) {
      case 'token.described':
        await tx.query(
          `INSERT INTO ${schema}.tokens AS known
             (token, standard, class_hash, name, symbol, decimals, first_block, described_at, described_offset)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
           ON CONFLICT (token) DO UPDATE SET
             standard = excluded.standard, class_hash = excluded.class_hash, name = excluded.name,
             symbol = excluded.symbol, decimals = excluded.decimals, first_block = excluded.first_block,
             described_at = excluded.described_at, described_offset = excluded.described_offset
           WHERE known.described_offset IS NULL OR known.described_offset < excluded.described_offset`,
          [
            message.token,
            message.standard,
            message.class_hash,
            storableOrNull(message.name),
            storableOrNull(message.symbol),
            message.decimals,
            message.block,
            message.observed_at,
            offset,
          ],
        );
        return;
      case 'token.listed':
        // A flag that the message leaves out keeps its value; a logo can also be taken away.
        await tx.query(
          `INSERT INTO ${schema}.tokens AS known
             (token, verified, common, public, hidden, logo, listed_at, listed_offset)
           VALUES ($1, coalesce($2, false), coalesce($3, false), coalesce($4, false), coalesce($5, false), $7, $8, $9)
           ON CONFLICT (token) DO UPDATE SET
             verified = coalesce($2, known.verified), common = coalesce($3, known.common),
             public = coalesce($4, known.public), hidden = coalesce($5, known.hidden),
             logo = CASE WHEN $6 THEN excluded.logo ELSE known.logo END,
             listed_at = excluded.listed_at, listed_offset = excluded.listed_offset
           WHERE known.listed_offset IS NULL OR known.listed_offset < excluded.listed_offset`,
          [
            message.token,
            message.verified ?? null,
            message.common ?? null,
            message.public ?? null,
            message.hidden ?? null,
            message.logo !== undefined,
            storableOrNull(message.logo ?? null),
            message.observed_at,
            offset,
          ],
        );
        return;
    }
  },
};
