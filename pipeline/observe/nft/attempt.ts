import { backoffMs } from '../../../infra/retry.ts';
import { errorMessage } from '../../../schemas/errors.ts';
import type { NftMessage } from '../../../schemas/messages/nft.ts';
import { storable } from '../../../schemas/text.ts';
import type { Node } from '../../node/types.ts';
import { readMetadata } from './document.ts';
import type { Metadata } from './document.ts';
import { MetadataFailure, unavailable } from './failure.ts';
import type { Fetcher, Source } from './fetch.ts';
import { GATEWAY } from './fetch.ts';
import type { HostSlots } from './host-slots.ts';
import type { NftTask } from './store.ts';
import { readTokenUri } from './token-uri.ts';
import type { CallForms } from './token-uri.ts';

export interface RetrySchedule {
  readonly baseMs: number;
  readonly maxMs: number;
  /** Failures in a row after which an NFT is given up. */
  readonly attempts: number;
}

/** Delay after the n-th failure in a row; null: given up. */
export function retryDelayMs(failures: number, { attempts, ...backoff }: RetrySchedule): number | null {
  return failures >= attempts ? null : backoffMs(failures, backoff, 0);
}

export interface AttemptDeps {
  readonly node: Pick<Node, 'call'>;
  readonly callForms: CallForms;
  readonly fetcher: Fetcher;
  readonly hosts: HostSlots;
  readonly retrySchedule: RetrySchedule;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Called with the document's host where an attempt got no metadata; null where no host is needed. */
  readonly onNoMetadata: (task: NftTask, host: string | null) => Promise<unknown>;
  /** Called after each call of the gateway. */
  readonly onGatewayResult: (failure: MetadataFailure | null) => void;
}

/**
 * Makes one attempt to fetch an NFT's metadata, and returns the message about its outcome; null: its host has no free slot.
 *
 * @throws the error of a node that did not answer, which is not the NFT's fault
 */
export async function attemptNft(
  deps: AttemptDeps,
  task: NftTask & { readonly failures: number },
  signal: AbortSignal,
): Promise<NftMessage | null> {
  const { fetcher, now, retrySchedule } = deps;
  const { token, tokenId, standard } = task;
  const subject = { v: 1 as const, token, token_id: tokenId };
  let uri: string | null = null;
  let source: Source | null = null;
  try {
    const id = BigInt(tokenId);
    uri = await readTokenUri(deps.node, { token, id, standard }, deps.callForms, { signal });
    source = fetcher.locate(uri, id);
    const metadata = await fetchMetadata(deps, source, id, signal);
    if (metadata === null) {
      await deps.onNoMetadata(task, source.host);
      return null;
    }
    return { type: 'nft.metadata_fetched', ...subject, uri, ...metadata, observed_at: now() };
  } catch (error) {
    if (!(error instanceof MetadataFailure)) throw error;
    if (source !== null) await deps.onNoMetadata(task, source.host);
    const failures = task.failures + 1;
    const observedAt = now();
    const delayMs = retryDelayMs(failures, retrySchedule);
    return {
      type: 'nft.metadata_failed',
      ...subject,
      uri,
      cause: error.reason,
      reason: storable(error.message),
      attempt: failures,
      retry_at: delayMs === null ? null : observedAt + delayMs,
      observed_at: observedAt,
    };
  }
}

/** Null where the host has no free slot. */
async function fetchMetadata(
  { fetcher, hosts, onGatewayResult }: AttemptDeps,
  source: Source,
  id: bigint,
  signal: AbortSignal,
): Promise<Metadata | null> {
  const { host } = source;
  if (host !== null && !hosts.acquire(host)) return null;
  try {
    const body = await fetcher.fetch(source, signal);
    if (host === GATEWAY) onGatewayResult(null);
    return readMetadata(body, id);
  } catch (error) {
    if (signal.aborted) throw error;
    // Whatever an untrusted answer causes counts as a failure of that NFT.
    const failure =
      error instanceof MetadataFailure ? error : unavailable(`unreadable answer: ${errorMessage(error)}`);
    if (host === GATEWAY) onGatewayResult(failure);
    throw failure;
  } finally {
    if (host !== null) hosts.release(host);
  }
}
