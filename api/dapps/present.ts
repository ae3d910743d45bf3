import type { Dapp } from '../../projections/catalogue/queries.ts';
import type { DappAnswer } from '../../schemas/api/directory.ts';

const iso = (millis: number): string => new Date(millis).toISOString();

export function presentDapp(dapp: Dapp): DappAnswer {
  return {
    ...dapp,
    launched_at: dapp.launched_at === null ? null : iso(dapp.launched_at),
    created_at: iso(dapp.created_at),
    updated_at: iso(dapp.updated_at),
  };
}
