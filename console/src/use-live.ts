import type { StreamOptions } from 'token-data-service-client';
import { useEffect, useState } from 'preact/hooks';

import { whileInView } from './in-view.ts';
import { NOTHING, applyMessage } from './live.ts';
import type { Live } from './live.ts';
import { client, shownError } from './loading.ts';

/** Messages are shown together: a chain may have a hundred transfers a second. */
const FLUSH_MS = 250;
/** A stream from a height begins with its block; if none has come after this time, that may have been reverted. */
const SILENT_MS = 5000;

/**
 * Follows the stream while the screen is in view, and resumes after the newest message when it is again; another `key` restarts it.
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
    let state = NOTHING;
    let isDirty = false;
    let next: Pick<StreamOptions, 'from'> = from === 'new' ? {} : { from };
    const timer = setInterval(() => {
      if (isDirty) setShown({ key, live: state });
      isDirty = false;
    }, FLUSH_MS);
    const noteSilence = (): void => {
      const { blocks, unended, error } = state;
      if (from === 'new' || blocks.length > 0 || unended > 0 || error !== null) return;
      state = { ...state, isSilent: true };
      isDirty = true;
    };
    const follow = async (signal: AbortSignal): Promise<void> => {
      const silence = setTimeout(noteSilence, SILENT_MS);
      signal.addEventListener('abort', () => clearTimeout(silence));
      for await (const message of client().stream({ ...options, ...next, signal })) {
        state = applyMessage({ ...state, error: null, isSilent: false }, message);
        next = { from: message.cursor };
        isDirty = true;
      }
    };
    const end = whileInView((signal) => {
      follow(signal).catch((error: unknown) => {
        if (signal.aborted) return;
        state = { ...state, error: shownError(error) };
        isDirty = true;
      });
    });
    return () => {
      end();
      clearInterval(timer);
    };
  }, [options.token, options.account, key]);
  return shown.key === key ? shown.live : NOTHING;
}
