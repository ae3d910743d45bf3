import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { TokenAnswer } from '../../schemas/api/tokens.ts';
import type { TokenStandard } from '../../schemas/messages/common.ts';

/** Decimals of a token whose contract gives none: an NFT's values are counts, anything else is taken as 18. */
export function decimalsOf(decimals: number | null, standard: TokenStandard | null): number {
  return decimals ?? (standard === 'erc721' || standard === 'erc1155' ? 0 : 18);
}

/** A token as the API shows it. There is no price feed yet, so no price is known of any. */
export function presentToken(token: TokenRow): TokenAnswer {
  const { standard } = token;
  return {
    address: token.token,
    symbol: token.symbol ?? '',
    name: token.name ?? '',
    decimals: decimalsOf(token.decimals, standard),
    logo: token.logo,
    current_price_usd: null,
    price_updated_at: null,
    verified: token.verified,
    common: token.common,
    public: token.public,
    hidden: token.hidden,
    is_erc20: standard === 'erc20',
    is_erc721: standard === 'erc721',
    is_erc1155: standard === 'erc1155',
  };
}
