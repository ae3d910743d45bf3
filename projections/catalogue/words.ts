/**
 * The words by which a dApp is searched. They are kept twice: as English stems, so that `trade` finds `trading`, and as
 * they are written, so that the beginning of a word finds it however it is stemmed. Writer and reader part words alike.
 */

/** Whatever parts words: PostgreSQL by itself would take `rhino.fi` for one word, and `v2/swap` for a path. */
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

/** More words of a search are not looked at. */
const MOST_WORDS = 16;

/**
 * SQL of a search for every word of a text, of the last one also as a beginning; null where the text has no word.
 *
 * @param bind makes a parameter of a value, and gives its place
 */
export function searchOf(text: string, bind: (value: unknown) => string): string | null {
  const words = text.match(/[\p{L}\p{M}\p{N}]+/gu)?.slice(0, MOST_WORDS) ?? [];
  if (words.length === 0) return null;
  const places = words.map((word, at) => bind(`'${word}'${at === words.length - 1 ? ':*' : ''}`));
  const stems = places.map((place) => `to_tsquery('english', ${place})`);
  const either = places.map((place, at) => `(${stems[at]} || to_tsquery('simple', ${place}))`);
  // By stems alone, too: there words like "the" are left out on both sides.
  return `((${stems.join(' && ')}) || (${either.join(' && ')}))`;
}
