import { chainName } from '../../../pipeline/node/chain-id.ts';
import { nftStates } from '../../../pipeline/observe/nft/store.ts';
import { priceStates } from '../../../pipeline/observe/prices/store.ts';
import type { PriceState } from '../../../pipeline/observe/prices/store.ts';
import type { Kafka } from '../../kafka/client.ts';
import type { Sql } from '../../postgres/client.ts';
import { headAgeSeconds, readPipelineStatus } from './status.ts';

/** `redis`: whether it answers; null if not configured. */
export type ServiceStatus = Awaited<ReturnType<typeof readStatus>> & { readonly redis: boolean | null };

/** Reads everything that `tds status` shows. */
export async function readStatus(db: Sql, kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>, stallSeconds: number) {
  const [{ consumers: _consumers, ...pipeline }, prices, nfts] = await Promise.all([
    readPipelineStatus(db, kafka, stallSeconds),
    priceStates(db),
    nftStates(db),
  ]);
  const chunks = pipeline.chunks.map(({ name, range_start, range_end, cursor, status, writer: holder }) => ({
    name,
    range_start,
    range_end,
    cursor,
    status,
    holder,
  }));
  return { ...pipeline, chunks, prices, nfts };
}

/** The status as lines for a terminal. */
export function renderStatus(status: ServiceStatus): string {
  const { chain, head, chunks, lags, isLogAvailable, halts, alarms, quarantine, roles, repairs } = status;
  const { prices, nfts, redis } = status;
  const age = headAgeSeconds(status, Date.now());
  const lines = [
    `chain        ${chain.chain_id === null ? 'not seen yet' : chainName(chain.chain_id)}${
      chain.spec_version === null ? '' : `, JSON-RPC ${chain.spec_version}`
    }${chain.has_header_counts === false ? ', headers without counts' : ''}${
      chain.has_l1_tag === false ? ', no l1_accepted tag' : ''
    }`,
    `node head    ${head ?? '-'}`,
    ...(age === null ? [] : [`head age     no newer block for ${age} s`]),
    `L1 height    ${chain.l1_height ?? '-'}`,
    '',
    ...roles.map(
      ({ name, state, since, detail }) =>
        `${name.padEnd(11)}  ${state}${since === null ? '' : ` since ${since}`}${detail === null ? '' : `: ${detail}`}`,
    ),
    '',
    'chunk                                   next height   done      writer',
    ...chunks.map(({ name, range_start, range_end, cursor, status, holder }) => {
      const end = range_end ?? head ?? cursor;
      const share = end < range_start ? 1 : Math.min(1, (cursor - range_start) / (end - range_start + 1));
      const done =
        range_end === null ? `${Math.max(0, end - cursor + 1)} left` : `${(100 * share).toFixed(1)} %`;
      return `${name.padEnd(38)}  ${String(cursor).padStart(11)}   ${done.padEnd(8)}  ${status === 'finished' ? 'finished' : (holder ?? 'none')}`;
    }),
    '',
    'projection           behind (messages, by partition)',
    ...[...Map.groupBy(lags, ({ projection }) => projection)].map(
      ([name, parts]) => `${name.padEnd(19)}  ${parts.map(({ lag }) => lag ?? '?').join(' ')}`,
    ),
    '',
    ...(repairs.oldest === null
      ? []
      : [`repairs      ${repairs.pending} left, the oldest since ${repairs.oldest.toISOString()}`]),
    ...(prices.length === 0 ? [] : [`prices       ${describePrices(prices)}`]),
    `NFTs         ${nfts.fetched} fetched, ${nfts.waiting} waiting, ${nfts.failing} failing, ${nfts.given_up} given up`,
    `quarantine   ${quarantine.length === 0 ? 'empty' : ''}`,
    ...quarantine.map(({ kind, reason, count }) => `  ${String(count).padStart(8)}  ${kind}: ${reason}`),
    ...halts.map(
      ({ projection, topic, partition, message_offset, reason }) =>
        `HALTED       ${projection} at ${topic}:${partition}:${message_offset}: ${reason}`,
    ),
    ...alarms.map(
      ({ name, detail, raised_at }) => `ALARM        ${name} since ${raised_at.toISOString()}: ${detail}`,
    ),
    ...(isLogAvailable ? [] : ['ALARM        Kafka unavailable: lags unknown']),
    ...(redis === false
      ? ['ALARM        Redis unavailable: limits are counted per process and stricter; log-ins are refused']
      : []),
  ];
  return lines.join('\n');
}

/** Number of tokens by outcome of their last price, and the time of the last published one. */
function describePrices(states: readonly PriceState[]): string {
  const newest = Math.max(0, ...states.map(({ published_at }) => published_at ?? 0));
  const counts = states.map(({ refusal, tokens }) => `${tokens} ${refusal ?? 'accepted'}`).join(', ');
  return `${counts}${newest === 0 ? '' : `; last published ${new Date(newest).toISOString()}`}`;
}
