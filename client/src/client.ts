import { ApiError } from './errors.ts';
import { createClient } from './generated/client/index.ts';
import { Operations } from './generated/sdk.gen.ts';
import type { ListTransfersData } from './generated/types.gen.ts';
import { retryingFetch } from './retry.ts';
import type { RetryOptions } from './retry.ts';
import { keyOf, streamTransfers } from './stream.ts';
import type { StreamMessage, StreamOptions, StreamTransport } from './stream.ts';
import { withAmounts } from './transfer.ts';
import type { Transfer, TransferRow } from './transfer.ts';

export interface ClientOptions {
  /** Of the service, without `/api`. */
  readonly baseUrl: string;
  readonly apiKey?: string;
  /** The token of a session, from `logIn`. */
  readonly session?: string;
  readonly retry?: RetryOptions;
  /** Default: that of the runtime. */
  readonly fetch?: typeof globalThis.fetch;
}

export type TransferQuery = Omit<NonNullable<ListTransfersData['query']>, 'page' | 'cursor'>;

/** A page of a list, as most of the lists answer. */
interface Page<T> {
  readonly results: readonly T[];
  readonly links: { readonly next?: string | null; readonly next_cursor?: string | null };
}

/**
 * Calls the service: a method for every operation of its OpenAPI document, whose promise has the answer and rejects with an
 * `ApiError`. Answers 429 and 503 are retried as `retryingFetch` says.
 */
export class TokenDataClient extends Operations {
  readonly #transport: StreamTransport;

  /** Lists that are read to their end. */
  readonly transfers = {
    /** All transfers that match, page by page, as they are asked for. */
    iterate: (query: TransferQuery, signal?: AbortSignal): AsyncGenerator<Transfer, void, void> =>
      this.#iterateTransfers(query, signal),
  };

  constructor({ baseUrl, apiKey, session, retry, fetch = globalThis.fetch }: ClientOptions) {
    const base = baseUrl.replace(/\/+$/, '');
    const client = createClient({
      baseUrl: base,
      // Called for each credential that the operation takes by the document; signatures are headers of the call.
      auth: ({ name, scheme }) =>
        scheme === 'bearer' ? session : name === 'api-key' ? keyOf(apiKey, session) : undefined,
      fetch: retryingFetch(fetch, retry),
      throwOnError: true,
    });
    // An Error is of the connection, also where the answer has begun; the reason of the signal is whatever its owner gave.
    client.interceptors.error.use((error, response, _request, { signal }) =>
      response === undefined ||
      error instanceof Error ||
      (signal?.aborted === true && error === signal.reason)
        ? error
        : new ApiError(response.status, error, response.headers),
    );
    super({ client });
    this.#transport = { baseUrl: base, apiKey, session, retry, fetch };
  }

  /** Follows the transfers live, through lost connections and reorgs: see `StreamMessage`. */
  stream(options: StreamOptions = {}): AsyncGenerator<StreamMessage, void, void> {
    return streamTransfers(this.#transport, options);
  }

  /**
   * The rows of any list with `results` and `links`: `client.pages((page) => client.listTokens({ query: page }))`.
   *
   * @param read reads a page; spread what it is given into the query
   */
  async *pages<T>(
    read: (at: { page?: number; cursor?: string }) => Promise<Page<T>>,
  ): AsyncGenerator<T, void, void> {
    let at: { page?: number; cursor?: string } = {};
    for (let number = 2; ; number += 1) {
      const { results, links } = await read(at);
      yield* results;
      const { next = null, next_cursor: cursor = null } = links;
      if (next === null && cursor === null) return;
      at = cursor === null ? { page: number } : { cursor };
    }
  }

  async *#iterateTransfers(query: TransferQuery, signal?: AbortSignal): AsyncGenerator<Transfer, void, void> {
    const rows = this.pages<TransferRow>((at) =>
      this.listTransfers({
        query: { limit: 100, ...query, ...at },
        ...(signal === undefined ? {} : { signal }),
      }),
    );
    for await (const row of rows) yield withAmounts(row);
  }
}
