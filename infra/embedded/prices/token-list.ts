import type { Wanted } from './answers.ts';
import { WireError } from './answers.ts';
import { coins } from './coins.ts';
import { struckToken } from './faults.ts';

/**
 * AVNU's token list, `GET /v1/starknet/tokens?page&size`, in the shape that its SDK reads (github.com/avnu-labs/avnu-sdk,
 * `src/types.ts`: `Page<Token>`; pages are counted from 0).
 */
export function tokenListAnswer({ query, strikes }: Wanted): unknown {
  const page = Number(query.get('page') ?? 0);
  const size = Number(query.get('size') ?? 10);
  if (!Number.isInteger(page) || page < 0 || !Number.isInteger(size) || size < 1 || size > 100)
    throw new WireError(400, 'page and size are integers, size from 1 to 100');
  const listed = coins.filter(({ token }) => struckToken(strikes, 'missing', token.address) === undefined);
  return {
    content: listed.slice(page * size, (page + 1) * size).map(({ token, address, tags, walk }) => {
      const text = (answer: typeof token.name): string =>
        answer.as === 'revert' ? '' : answer.bytes.toString('utf8');
      return {
        name: text(token.name),
        address,
        symbol: text(token.symbol),
        decimals: token.decimals,
        logoUri: tags.includes('Unknown') ? null : `https://logos.example/starknet/${token.key}.png`,
        lastDailyVolumeUsd: walk === null ? 0 : Number((walk.level * 1_234.5).toPrecision(8)),
        extensions: {},
        tags,
      };
    }),
    totalPages: Math.ceil(listed.length / size),
    totalElements: listed.length,
    size,
    number: page,
  };
}
