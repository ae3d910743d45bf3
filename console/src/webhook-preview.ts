import { asFelt } from './search.ts';

/** What a person has entered of a subscription, as typed. */
export interface Entered {
  readonly token: string;
  readonly address: string;
  readonly price_above: string;
  readonly price_below: string;
}

export const NOTHING_ENTERED: Entered = { token: '', address: '', price_above: '', price_below: '' };

/** The example body of an event with what the subscription asks for: its token, its account and its prices. */
export function previewOf(
  example: Readonly<Record<string, unknown>>,
  { token, address, price_above, price_below }: Entered,
): Record<string, unknown> {
  const [felt, account] = [asFelt(token), asFelt(address)];
  const entered: Readonly<Record<string, string | null>> = {
    token_address: felt,
    // A transfer matches by either side; a balance has one account.
    account_address: account,
    from_address: account,
    threshold_above: price_above === '' && price_below === '' ? null : price_above,
    threshold_below: price_above === '' && price_below === '' ? null : price_below,
  };
  const data = Object.entries(example['data'] ?? {}).map(([name, value]: [string, unknown]) => [
    name,
    entered[name] ?? value,
  ]);
  return { ...example, data: Object.fromEntries(data) as unknown };
}
