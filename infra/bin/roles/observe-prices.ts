import { createTextReader } from '../../../pipeline/observe/http.ts';
import { createDefiLlama } from '../../../pipeline/observe/prices/defillama.ts';
import type { PriceFeed } from '../../../pipeline/observe/prices/feed.ts';
import { runPriceObserver } from '../../../pipeline/observe/prices/observer.ts';
import { runTokenList } from '../../../pipeline/observe/token-list.ts';
import { listTokens } from '../../../projections/tokens/queries.ts';
import { servedSchema } from '../../../projections/served.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { isNft } from '../../../schemas/messages/common.ts';
import { systemClock } from '../../clock.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import { forgetAlarms } from '../../health/alarms.ts';
import type { Kafka } from '../../kafka/client.ts';
import type { Pool, Sql } from '../../postgres/client.ts';
import type { RoleContext } from '../role.ts';

/** Largest response of a list or feed: AVNU's page of 100 tokens is about 40 kB. */
const MAX_ANSWER_BYTES = 4_000_000;
const PAGE = 1000;

/** Starts the observers of prices and of the token list; each runs if its URL is set. */
export async function startPriceObservers(
  { config, log, metrics, releasers, signal, fail }: RoleContext,
  { kafka, pool }: { readonly kafka: Kafka; readonly pool: Pool },
): Promise<void> {
  if (config.tokenListUrl === null) await forgetAlarms(pool, 'tokens.list');
  else {
    const reader = openReader(config);
    releasers.push('token list', () => reader.close());
    const list = await runTokenList({ config, reader, url: config.tokenListUrl, pool, kafka, log, signal });
    list.done.catch(fail);
    releasers.push('token list observer', () => list.stop());
  }
  if (config.priceFeedUrl === null) {
    log.info({}, 'PRICE_FEED_URL unset, price observer disabled');
    await pool.query("DELETE FROM tds.checkpoints WHERE consumer = 'observe-prices'");
    await forgetAlarms(pool, 'prices.');
    return;
  }
  const feed = openPriceFeed(config);
  releasers.push('price feed', () => feed.close());
  const commonTokens = async (): Promise<Felt[] | null> => await readCommonTokens(pool);
  const observer = await runPriceObserver({ config, feed, commonTokens, pool, kafka, log, metrics, signal });
  observer.done.catch(fail);
  releasers.push('price observer', () => observer.stop());
}

/** The price feed at PRICE_FEED_URL. */
export function openPriceFeed(config: Config): PriceFeed {
  return createDefiLlama(openReader(config), required(config, 'priceFeedUrl'));
}

/** Common fungible tokens, whose prices are polled. Null while no build of the tokens is served. */
export async function readCommonTokens(db: Sql): Promise<Felt[] | null> {
  const schema = await servedSchema(db, 'tokens');
  if (schema === null) return null;
  const found: Felt[] = [];
  for (let offset = 0; ; offset += PAGE) {
    const rows = await listTokens(db, schema, { common: true, hidden: false }, { offset, limit: PAGE });
    const priced = rows.filter(({ standard }) => !isNft(standard));
    found.push(...priced.map(({ token }) => token));
    if (rows.length < PAGE) return found;
  }
}

/** Reader of the token list, and of a price feed. */
export function openReader(config: Config): ReturnType<typeof createTextReader> {
  return createTextReader({
    timeoutMs: config.priceTimeoutMs,
    maxAnswerBytes: MAX_ANSWER_BYTES,
    maxConcurrent: 2,
    clock: systemClock,
  });
}
