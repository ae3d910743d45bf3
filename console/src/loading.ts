import type { TokenDataClient } from 'token-data-service-client';
import { ApiError } from 'token-data-service-client';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

import { clientOf, currentSession } from './session.ts';

/** What is read of the service. `data` stays while it is read again, and beside the `error` of a read that fails. */
export interface Loaded<T> {
  readonly data: T | undefined;
  readonly error: Error | undefined;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

export const client = (): TokenDataClient => clientOf(currentSession());

export const shownError = (error: unknown): Error =>
  error instanceof Error ? error : new Error(String(error));

/** What is read, or null where the service has none. */
export async function orNull<T>(read: Promise<T>): Promise<T | null> {
  return await read.catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  });
}

/**
 * Reads with `load` whenever one of `keys` changes. A read that is no longer wanted is aborted, and what it found is dropped.
 */
export function useLoad<T>(
  load: (client: TokenDataClient, signal: AbortSignal) => Promise<T>,
  keys: readonly unknown[],
): Loaded<T> {
  const name = JSON.stringify(keys);
  const [state, setState] = useState<{ name: string; data?: T; error?: Error; isLoading: boolean }>({
    name,
    isLoading: true,
  });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const ended = new AbortController();
    setState((previous) => ({
      ...(previous.name === name && previous.data !== undefined ? previous : { name }),
      isLoading: true,
    }));
    latest
      .current(client(), ended.signal)
      .then((data) => ended.signal.aborted || setState({ name, data, isLoading: false }))
      .catch((failure: unknown) => {
        if (ended.signal.aborted) return;
        const error = shownError(failure);
        setState((previous) => ({ ...previous, error, isLoading: false }));
      });
    return () => ended.abort();
  }, [name, round]);
  const isCurrent = state.name === name;
  return {
    data: isCurrent ? state.data : undefined,
    error: isCurrent ? state.error : undefined,
    isLoading: !isCurrent || state.isLoading,
    reload: useCallback(() => setRound((before) => before + 1), []),
  };
}

/** A page of an endless list, and where the next one begins; null: it was the last. */
export interface ListPage<T> {
  readonly rows: readonly T[];
  readonly next: string | null;
  /** Of all rows. */
  readonly count: number;
  readonly isEstimate?: boolean | undefined;
  /** Not all blocks are counted in the rows. */
  readonly isPartial?: boolean | undefined;
}

export interface EndlessList<T> extends Loaded<ListPage<T>> {
  readonly more: () => void;
}

/** Reads page after page, each when `more` is called; one of a list that has changed is aborted. */
export function useEndless<T>(
  load: (client: TokenDataClient, at: string | null, signal: AbortSignal) => Promise<ListPage<T>>,
  keys: readonly unknown[],
): EndlessList<T> {
  const first = useLoad((api, signal) => load(api, null, signal), keys);
  const [rest, setRest] = useState<{
    of: unknown;
    page: ListPage<T> | null;
    isLoading: boolean;
    error?: Error;
  }>({
    of: null,
    page: null,
    isLoading: false,
  });
  const reading = useRef<AbortController | null>(null);
  useEffect(() => () => reading.current?.abort(), [first.data]);
  const own = rest.of === first.data && first.data !== undefined ? rest : null;
  const all =
    first.data === undefined || own === null || own.page === null
      ? first.data
      : { ...first.data, rows: [...first.data.rows, ...own.page.rows], next: own.page.next };
  const more = (): void => {
    if (all === undefined || all.next === null || own?.isLoading === true) return;
    const of = first.data;
    const read = own?.page?.rows ?? [];
    setRest({ of, page: own?.page ?? null, isLoading: true });
    const { signal } = (reading.current = new AbortController());
    load(client(), all.next, signal)
      .then(
        (page) =>
          signal.aborted ||
          setRest({ of, page: { ...page, rows: [...read, ...page.rows] }, isLoading: false }),
      )
      .catch(
        (error: unknown) =>
          signal.aborted ||
          setRest({ of, page: own?.page ?? null, isLoading: false, error: shownError(error) }),
      );
  };
  return {
    data: all,
    error: first.error ?? own?.error,
    isLoading: first.isLoading || own?.isLoading === true,
    reload: first.reload,
    more,
  };
}
