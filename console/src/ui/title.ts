import { useEffect } from 'preact/hooks';

/** Names the screen in the window's title. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Token data service`;
  }, [title]);
}
