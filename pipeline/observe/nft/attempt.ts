import type { NftMessage } from '../../../schemas/messages/nft.ts';
import { storable } from '../../../schemas/text.ts';
import type { Node } from '../../node/types.ts';
import { readMetadata } from './document.ts';
import { MetadataFailure, unavailable } from './failure.ts';
import type { Fetcher } from './fetch.ts';
import { GATEWAY } from './fetch.ts';
import type { Hosts } from './hosts.ts';
import type { NftTask } from './store.ts';
import { readTokenUri } from './token-uri.ts';
import type { Spellings } from './token-uri.ts';

/** When a failed attempt is made again. */
export interface Backoff {
  readonly baseMs: number;
  readonly mostMs: number;
  /** After so many failures in a row nobody tries again. */
  readonly attempts: number;
}

/** When to try after the n-th failure in a row, in milliseconds from it: doubling; null: not any more. */
export function backoffMs(failures: number, { baseMs, mostMs, attempts }: Backoff): number | null {
  return failures >= attempts ? null : Math.min(mostMs, baseMs * 2 ** (failures - 1));
}

export interface AttemptDeps {
  readonly node: Pick<Node, 'call'>;
  readonly spellings: Spellings;
  readonly fetcher: Fetcher;
  readonly hosts: Hosts;
  readonly backoff: Backoff;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Told who serves an NFT, once that is known. */
  readonly onFound: (task: NftTask, host: string | null) => Promise<unknown>;
  /** Told how a call of the gateway ended. */
  readonly onGateway: (failure: MetadataFailure | null) => void;
}

/**
 * One attempt to fetch an NFT's metadata, as the message that tells of it; null: its host has no place left now.
 *
 * @throws what is none of the NFT's fault: the node is away
 */
export async function attemptNft(
  deps: AttemptDeps,
  task: NftTask & { readonly failures: number },
  signal: AbortSignal,
): Promise<NftMessage | null> {
  const { fetcher, hosts, now } = deps;
  const subject = { v: 1 as const, token: task.token, token_id: task.tokenId };
  let uri: string | null = null;
  try {
    const id = BigInt(task.tokenId);
    uri = await readTokenUri(deps.node, { token: task.token, id, standard: task.standard }, deps.spellings, {
      signal,
    });
    const source = fetcher.locate(uri, id);
    const { host } = source;
    await deps.onFound(task, host);
    if (host !== null && !hosts.enter(host)) return null;
    try {
      const body = await fetcher.fetch(source, signal);
      if (host === GATEWAY) deps.onGateway(null);
      const metadata = readMetadata(body);
      return { type: 'nft.metadata_fetched', ...subject, uri, ...metadata, observed_at: now() };
    } catch (error) {
      if (signal.aborted) throw error;
      // Whatever a stranger's answer did: it is his, and counts as every other failure of it.
      const failure = error instanceof MetadataFailure ? error : unreadable(error);
      if (host === GATEWAY) deps.onGateway(failure);
      throw failure;
    } finally {
      if (host !== null) hosts.leave(host);
    }
  } catch (error) {
    if (!(error instanceof MetadataFailure)) throw error;
    const attempt = task.failures + 1;
    const observedAt = now();
    const wait = backoffMs(attempt, deps.backoff);
    return {
      type: 'nft.metadata_failed',
      ...subject,
      uri,
      cause: error.reason,
      reason: storable(error.message),
      attempt,
      retry_at: wait === null ? null : observedAt + wait,
      observed_at: observedAt,
    };
  }
}

function unreadable(error: unknown): MetadataFailure {
  return unavailable(`the answer cannot be read: ${error instanceof Error ? error.message : String(error)}`);
}
