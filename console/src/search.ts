/** What a search text may be. An address and a hash look alike: the service is asked which it is. */
export type Asked =
  | { readonly kind: 'none' }
  | { readonly kind: 'block'; readonly height: number }
  | { readonly kind: 'felt'; readonly hex: string }
  | { readonly kind: 'text'; readonly text: string };

const MAX_HEIGHT = 4_294_967_295;
/** The order of the field; addresses and hashes are below it. */
const FELT_LIMIT = 2n ** 251n + 17n * 2n ** 192n + 1n;

/** Pads a felt to its 64 digits; null if the text is none. */
export function asFelt(text: string): string | null {
  const [, digits] = /^0x([0-9a-f]{1,64})$/i.exec(text.trim()) ?? [];
  if (digits === undefined || BigInt(`0x${digits}`) >= FELT_LIMIT) return null;
  return `0x${digits.toLowerCase().padStart(64, '0')}`;
}

/** A number is a height, `0x…` or 64 hexadecimal digits an address or hash, all else a part of a token's name or symbol. */
export function classify(input: string): Asked {
  const text = input.trim();
  if (text === '') return { kind: 'none' };
  const height = text.replaceAll(/(?<=\d)[,_ ](?=\d{3}(?!\d))/g, '');
  if (/^#?\d{1,10}$/.test(height)) {
    const number = Number(height.replace('#', ''));
    if (number <= MAX_HEIGHT) return { kind: 'block', height: number };
  }
  const hex = asFelt(/^[0-9a-f]{64}$/i.test(text) ? `0x${text}` : text);
  return hex === null ? { kind: 'text', text } : { kind: 'felt', hex };
}
