import { useEffect, useRef } from 'preact/hooks';

import type { Loaded } from './loading.ts';

/** Reads again every so often while the page is in view, once the previous read has ended; null: never. */
export function usePolled<T>(loaded: Loaded<T>, everyMs: number | null): Loaded<T> {
  const { reload } = loaded;
  const isLoading = useRef(false);
  isLoading.current = loaded.isLoading;
  useEffect(() => {
    if (everyMs === null) return;
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible' && !isLoading.current) reload();
    }, everyMs);
    return () => clearInterval(timer);
  }, [reload, everyMs]);
  return loaded;
}
