/**
 * The words by which a dApp is found, stored twice: as English stems, so that `trade` finds `trading`, and as written, so
 * that the beginning of a word finds it whatever its stem. Writer and reader split words in the same way.
 */

/** Characters that separate words: PostgreSQL alone takes `rhino.fi` for one word, and `v2/swap` for a path. */
const PUNCTUATION = '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~';

const parted = (text: string): string =>
  `translate(${text}, '${PUNCTUATION.replace("'", "''")}', repeat(' ', ${PUNCTUATION.length}))`;

const weighed = (text: string, weight: 'A' | 'B' | 'C'): string =>
  ['english', 'simple']
    .map((config) => `setweight(to_tsvector('${config}', ${parted(text)}), '${weight}')`)
    .join(' || ');

/** SQL of the words of a dApp's row: its name counts most, then its tags, then its description. */
export const wordsOf = (row: string): string =>
  [weighed(`${row}.name`, 'A'), weighed(`${row}.tags::text`, 'B'), weighed(`${row}.description`, 'C')].join(
    ' || ',
  );

/** Further words of a search are ignored. */
const MAX_WORDS = 16;

/**
 * SQL of a search for all words of a text, the last of which may be the beginning of one; null for a text without words.
 *
 * @param bind adds a parameter, and returns its placeholder
 */
export function searchOf(text: string, bind: (value: unknown) => string): string | null {
  const words = text.match(/[\p{L}\p{M}\p{N}]+/gu)?.slice(0, MAX_WORDS) ?? [];
  if (words.length === 0) return null;
  const places = words.map((word, at) => bind(`'${word}'${at === words.length - 1 ? ':*' : ''}`));
  const stems = places.map((place) => `to_tsquery('english', ${place})`);
  const either = places.map((place, at) => `(${stems[at]} || to_tsquery('simple', ${place}))`);
  // By stems alone, too: they leave out words like "the" on both sides.
  return `((${stems.join(' && ')}) || (${either.join(' && ')}))`;
}
