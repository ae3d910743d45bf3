const allowedOrigins = new Set(
  (document.querySelector<HTMLMetaElement>('meta[name=image-origins]')?.content ?? '').split(' '),
);

/** The URL of an image that the content policy of the page allows; null: the image is not shown. */
export function shownImage(url: string | null | undefined): string | null {
  const parsed = URL.parse(url ?? '');
  if (parsed === null) return null;
  if (parsed.protocol === 'data:') return /^data:image\//i.test(parsed.href) ? parsed.href : null;
  return allowedOrigins.has(parsed.origin) ? parsed.href : null;
}
