import { useEffect, useState } from 'preact/hooks';

/** Where the application is: path and query of the address. */
export interface Place {
  readonly path: string;
  readonly query: URLSearchParams;
}

const listeners = new Set<() => void>();
const here = (): Place => ({ path: location.pathname, query: new URLSearchParams(location.search) });
const notify = (): void => {
  for (const listener of listeners) listener();
};
addEventListener('popstate', notify);

/** Goes to a path of the application. */
export function navigate(to: string, { replace = false }: { replace?: boolean } = {}): void {
  const isOtherPath = new URL(to, location.href).pathname !== location.pathname;
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  notify();
  if (!isOtherPath) return;
  scrollTo(0, 0);
  // Screen readers read on from the new screen.
  document.getElementById('main')?.focus({ preventScroll: true });
}

export function usePlace(): Place {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    const update = (): void => setPlace(here());
    listeners.add(update);
    // The address may have changed before this effect ran.
    update();
    return () => listeners.delete(update);
  }, []);
  return place;
}

/** Lets links within the application change the screen without loading the page again. */
export function followLinks(): void {
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (link === null || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const isOurs = link.origin === location.origin && !link.hasAttribute('data-page') && link.target === '';
    if (!isOurs || link.hasAttribute('download') || link.getAttribute('href')?.startsWith('#')) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}
