import type { TokenDataClient } from 'token-data-service-client';
import { ApiError } from 'token-data-service-client';
import { useRef, useState } from 'preact/hooks';

import { fieldErrors } from './field-errors.ts';
import { client, shownError } from './loading.ts';

/** Something that a person does at the service. */
export interface Action<A extends unknown[]> {
  readonly isBusy: boolean;
  readonly error: Error | null;
  /** As `fieldErrors`. */
  readonly errorsOf: (field: string) => readonly string[];
  /** Resolves when it is done, or has failed. */
  run(...args: A): Promise<void>;
}

/** Adds the `Idempotency-Key` of a request. */
type WithKey = <R extends object>(request: R) => R & { readonly headers: { 'Idempotency-Key': string } };

/**
 * @param work what is done. The same request keeps its `Idempotency-Key` until the service has decided about it: after a 5xx or a
 * lost connection the write may have been made, and a second click finds its outcome.
 */
export function useAction<A extends unknown[]>(
  work: (api: TokenDataClient, withKey: WithKey, ...args: A) => Promise<void>,
): Action<A> {
  const undecided = useRef<{ content: string; key: string; mayBeMade: boolean } | null>(null);
  const withKey: WithKey = (request) => {
    const content = JSON.stringify(request);
    if (undecided.current?.content !== content)
      undecided.current = { content, key: randomKey(), mayBeMade: false };
    return { ...request, headers: { 'Idempotency-Key': undecided.current.key } };
  };
  const [state, setState] = useState<{ isBusy: boolean; error: Error | null }>({
    isBusy: false,
    error: null,
  });
  const { error } = state;
  return {
    ...state,
    errorsOf: (field) => (error instanceof ApiError ? fieldErrors(error.errors, field) : []),
    async run(...args) {
      setState({ isBusy: true, error: null });
      try {
        await work(client(), withKey, ...args);
        undecided.current = null;
        setState({ isBusy: false, error: null });
      } catch (failure) {
        const last = undecided.current;
        if (isRefusal(failure, last?.mayBeMade === true)) undecided.current = null;
        else if (last !== null) undecided.current = { ...last, mayBeMade: true };
        setState({ isBusy: false, error: shownError(failure) });
      }
    },
  };
}

/** Statuses that only the write itself leads to; others may be of a check before it, which an earlier attempt may have passed. */
const DECIDED = [404, 409, 422];

/** Whether the write was not made, and will not be. */
const isRefusal = (failure: unknown, mayBeMade: boolean): boolean =>
  failure instanceof ApiError && failure.status < 500 && (!mayBeMade || DECIDED.includes(failure.status));

/** `crypto.randomUUID` is missing on a page that came by plain HTTP from another machine. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
