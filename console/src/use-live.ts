import type { StreamOptions } from 'token-data-service-client';
import { useEffect, useState } from 'preact/hooks';

import { NOTHING, applyMessage } from './live.ts';
import type { Live } from './live.ts';
import { client, shownError } from './loading.ts';

/** Messages are shown together: a chain may have a hundred transfers a second. */
const FLUSH_MS = 250;

/**
 * Follows the stream while the screen is shown; another `key` restarts it.
 *
 * @param from a height; `new`: only new transfers; null: not yet
 */
export function useLive(
  options: Pick<StreamOptions, 'token' | 'account'>,
  from: number | 'new' | null,
  key: unknown = from,
): Live {
  const [shown, setShown] = useState({ key, live: NOTHING });
  useEffect(() => {
    if (from === null) return;
    const ended = new AbortController();
    let state = NOTHING;
    let isDirty = false;
    const timer = setInterval(() => {
      if (isDirty) setShown({ key, live: state });
      isDirty = false;
    }, FLUSH_MS);
    const follow = async (): Promise<void> => {
      const start = from === 'new' ? {} : { from };
      for await (const message of client().stream({ ...options, ...start, signal: ended.signal })) {
        state = applyMessage(state, message);
        isDirty = true;
      }
    };
    follow().catch((error: unknown) => {
      if (ended.signal.aborted) return;
      state = { ...state, error: shownError(error) };
      isDirty = true;
    });
    return () => {
      ended.abort();
      clearInterval(timer);
    };
  }, [options.token, options.account, key]);
  return shown.key === key ? shown.live : NOTHING;
}
