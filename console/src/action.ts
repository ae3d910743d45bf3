import type { TokenDataClient } from 'token-data-service-client';
import { ApiError } from 'token-data-service-client';
import { useState } from 'preact/hooks';

import { client, shownError } from './loading.ts';

/** Something that a person does at the service. */
export interface Action<A extends unknown[]> {
  readonly isBusy: boolean;
  readonly error: Error | null;
  /** What the service says about each field, and about the item of a list: `events[0]` counts as `events`. */
  readonly errorsOf: (field: string) => readonly string[];
  /** Resolves when it is done, or has failed. */
  run(...args: A): Promise<void>;
}

/** @param work what is done; a repeated write finds the outcome of the first by its `Idempotency-Key` */
export function useAction<A extends unknown[]>(
  work: (api: TokenDataClient, headers: { 'Idempotency-Key': string }, ...args: A) => Promise<void>,
): Action<A> {
  const [state, setState] = useState<{ isBusy: boolean; error: Error | null }>({
    isBusy: false,
    error: null,
  });
  const { error } = state;
  return {
    ...state,
    errorsOf: (field) =>
      error instanceof ApiError
        ? Object.entries(error.errors)
            .filter(
              ([name]) => name === field || name.startsWith(`${field}[`) || name.startsWith(`${field}.`),
            )
            .flatMap(([, texts]) => texts)
        : [],
    async run(...args) {
      setState({ isBusy: true, error: null });
      try {
        await work(client(), { 'Idempotency-Key': randomKey() }, ...args);
        setState({ isBusy: false, error: null });
      } catch (failure) {
        setState({ isBusy: false, error: shownError(failure) });
      }
    },
  };
}

/** `crypto.randomUUID` is missing on a page that came by plain HTTP from another machine. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
