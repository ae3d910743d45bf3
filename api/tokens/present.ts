import type { LatestPrice } from '../../projections/latest-prices/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { TokenAnswer } from '../../schemas/api/tokens.ts';
import { decimalsOf } from '../../schemas/money.ts';
import { iso } from '../http/times.ts';

export const decimalsOfToken = (token: TokenRow | undefined): number =>
  decimalsOf(token?.decimals ?? null, token?.standard ?? null);

export function presentToken(token: TokenRow, latest: LatestPrice | undefined): TokenAnswer {
  const { standard } = token;
  const price = latest?.price ?? null;
  return {
    address: token.token,
    symbol: token.symbol ?? '',
    name: token.name ?? '',
    decimals: decimalsOfToken(token),
    logo: token.logo,
    current_price_usd: price?.usd ?? null,
    price_updated_at: price === null ? null : iso(price.observedAt),
    verified: token.verified,
    common: token.common,
    public: token.public,
    hidden: token.hidden,
    is_erc20: standard === 'erc20',
    is_erc721: standard === 'erc721',
    is_erc1155: standard === 'erc1155',
  };
}
