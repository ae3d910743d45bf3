import type { JSX } from 'preact';
import type { ListNftsOwnedByResponses } from 'token-data-service-client';

import { printable } from '../format.ts';
import { shownImage } from '../images.ts';
import { useEndless } from '../loading.ts';
import { Loading, More, Panel } from '../ui/parts.tsx';
import { Count, TokenName } from '../ui/values.tsx';

type Nft = ListNftsOwnedByResponses[200]['data'][number];

const PAGE = 24;

export function AccountNfts({ address }: { readonly address: string }): JSX.Element {
  const list = useEndless(
    async (api, at, signal) => {
      const page = Number(at ?? 1);
      const query = { account_address: address, page, page_size: PAGE, include_metadata: true };
      const { data, count } = await api.listNftsOwnedBy({ query, signal });
      return { rows: data, next: page * PAGE < count ? String(page + 1) : null, count };
    },
    [address],
  );
  return (
    <Panel
      title="NFTs"
      aside={
        list.data !== undefined && (
          <span class="quiet" data-figure="count">
            <Count value={list.data.count} />
          </span>
        )
      }
    >
      <Loading of={list}>
        {({ rows }) =>
          rows.length === 0 ? (
            <p class="quiet empty">No NFTs.</p>
          ) : (
            <ul class="gallery">
              {rows.map((nft) => (
                <NftCard key={`${nft.token_address}/${nft.nft_token_id}`} nft={nft} />
              ))}
            </ul>
          )
        }
      </Loading>
      <More list={list} />
    </Panel>
  );
}

function NftCard({ nft }: { readonly nft: Nft }): JSX.Element {
  const image = shownImage(nft.image);
  const name = printable(nft.name ?? '');
  return (
    <li class="card">
      {image === null ? (
        <div class="no-image quiet">{nft.image ? 'Image of another host' : 'No image'}</div>
      ) : (
        // In an <img> an SVG runs no scripts and loads nothing.
        <img
          src={image}
          alt=""
          loading="lazy"
          decoding="async"
          referrerpolicy="no-referrer"
          width={160}
          height={160}
        />
      )}
      {name !== '' && (
        <b>
          <bdi>{name}</bdi>
        </b>
      )}
      <span>
        <TokenName address={nft.token_address} symbol={nft.collection_name ?? nft.collection_symbol} />
      </span>
      <small class="quiet nft-id" title={nft.nft_token_id}>
        #{nft.nft_token_id}
      </small>
    </li>
  );
}
