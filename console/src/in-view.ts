import { useEffect, useState } from 'preact/hooks';

/** A browser opens six connections to a service for all of its tabs, so a hidden one closes its own after this time. */
const HIDDEN_MS = 5000;

/** Does `work` while the page is in view; its signal fires once the page is hidden. Returns what ends it. */
export function whileInView(work: (signal: AbortSignal) => void): () => void {
  let ended: AbortController | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const end = (): void => {
    ended?.abort();
    ended = null;
  };
  const update = (): void => {
    clearTimeout(timer);
    if (document.visibilityState === 'hidden') timer = setTimeout(end, HIDDEN_MS);
    else if (ended === null) {
      ended = new AbortController();
      work(ended.signal);
    }
  };
  document.addEventListener('visibilitychange', update);
  update();
  return () => {
    document.removeEventListener('visibilitychange', update);
    clearTimeout(timer);
    end();
  };
}

/** After this time, a live screen is loaded again: the messages since would be too many. */
const LONG_MS = 300_000;

/** How often the page came into view after a long time, or for the first time after it was loaded in the background. */
export function useReturns(): number {
  const [returns, setReturns] = useState(0);
  useEffect(() => {
    let hiddenAt = document.visibilityState === 'hidden' ? -Infinity : Infinity;
    const update = (): void => {
      if (document.visibilityState === 'hidden') hiddenAt = Date.now();
      else if (Date.now() - hiddenAt > LONG_MS) setReturns((before) => before + 1);
    };
    document.addEventListener('visibilitychange', update);
    return () => document.removeEventListener('visibilitychange', update);
  }, []);
  return returns;
}
