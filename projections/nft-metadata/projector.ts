import type { NftMessage } from '../../schemas/messages/nft.ts';
import { OBSERVED_CHANNEL, requestSubject } from '../../schemas/messages/requests.ts';
import { storable, storableOrNull } from '../../schemas/text.ts';
import { topics } from '../../schemas/topics.ts';
import { tableSql } from '../define.ts';
import type { PostgresProjection } from '../define.ts';

/**
 * All messages about an NFT are in one partition, in the order of the attempts. Metadata that was fetched once is kept.
 */
export const nftMetadata: PostgresProjection<NftMessage> = {
  kind: 'postgres',
  name: 'nft-metadata',
  version: 1,
  topic: topics.nft,
  ddl: tableSql(import.meta.url),
  notify: {
    channel: OBSERVED_CHANNEL,
    payload: ({ token, token_id }) => requestSubject({ type: 'nft.metadata_requested', token, token_id }),
  },
  async fold(tx, message, { schema }) {
    const { token, token_id, observed_at } = message;
    switch (message.type) {
      case 'nft.metadata_fetched':
        await tx.query(
          `INSERT INTO ${schema}.nft_metadata (token, token_id, is_fetched, attempt_count, last_attempt_at, retry_at, reason,
             has_reverted, uri, name, description, image, external_url, animation_url, attributes)
           VALUES ($1, $2, true, 0, $3, NULL, NULL, false, $4, $5, $6, $7, $8, $9, $10)
           ON CONFLICT (token, token_id) DO UPDATE SET is_fetched = true, attempt_count = 0,
             last_attempt_at = excluded.last_attempt_at, retry_at = NULL, reason = NULL, has_reverted = false,
             uri = excluded.uri, name = excluded.name, description = excluded.description, image = excluded.image,
             external_url = excluded.external_url, animation_url = excluded.animation_url,
             attributes = excluded.attributes`,
          [
            token,
            token_id,
            observed_at,
            ...[
              message.uri,
              message.name,
              message.description,
              message.image,
              message.external_url,
              message.animation_url,
            ].map(storableOrNull),
            JSON.stringify(
              message.attributes.map(({ trait_type, value }) => ({
                trait_type: storable(trait_type),
                value: storable(value),
              })),
            ),
          ],
        );
        return;
      case 'nft.metadata_failed':
        await tx.query(
          `INSERT INTO ${schema}.nft_metadata AS known (token, token_id, is_fetched, attempt_count, last_attempt_at,
             retry_at, reason, has_reverted, uri, attributes)
           VALUES ($1, $2, false, $3, $4, $5, $6, $7, $8, '[]')
           ON CONFLICT (token, token_id) DO UPDATE SET attempt_count = excluded.attempt_count,
             last_attempt_at = excluded.last_attempt_at, retry_at = excluded.retry_at, reason = excluded.reason,
             has_reverted = excluded.has_reverted, uri = coalesce(excluded.uri, known.uri)
           WHERE NOT known.is_fetched`,
          [
            token,
            token_id,
            message.attempt,
            observed_at,
            message.retry_at,
            storable(message.reason),
            message.cause === 'reverted',
            storableOrNull(message.uri),
          ],
        );
        return;
    }
  },
};
