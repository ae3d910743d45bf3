import type { Dapp } from '../../projections/catalogue/queries.ts';
import type { DappAnswer } from '../../schemas/api/directory.ts';
import { iso, isoOrNull } from '../http/times.ts';

export function presentDapp(dapp: Dapp): DappAnswer {
  return {
    ...dapp,
    launched_at: isoOrNull(dapp.launched_at),
    created_at: iso(dapp.created_at),
    updated_at: iso(dapp.updated_at),
  };
}
