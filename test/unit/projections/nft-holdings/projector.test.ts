import { nftHoldings } from '../../../../projections/nft-holdings/projector.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';

testBlockProjection(nftHoldings);
