import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { TokenDataClient } from 'token-data-service-client';

import { orNull, useEndless, useLoad } from '../loading.ts';
import { navigate, usePlace } from '../router.ts';
import { classify } from '../search.ts';
import { Loading, More, Panel } from '../ui/parts.tsx';
import { useTitle } from '../ui/title.ts';
import { TokenTable } from '../ui/tokens.tsx';

/** Shows what was searched for, or the tokens whose names match. */
export function Search(): JSX.Element {
  const { query } = usePlace();
  const text = query.get('q') ?? '';
  useTitle(`Search: ${text}`);
  const asked = classify(text);
  useEffect(() => {
    if (asked.kind === 'block') navigate(`/block/${asked.height}`, { replace: true });
  }, [text]);
  return (
    <>
      <h1>Search</h1>
      {asked.kind === 'felt' && <Resolve hex={asked.hex} />}
      {asked.kind === 'text' && <Tokens text={asked.text} />}
      {asked.kind === 'none' && (
        <p>Enter an address, the hash of a transaction or block, a block’s height or a token’s name.</p>
      )}
    </>
  );
}

/** Asks the service what an address or hash is, and goes there. */
function Resolve({ hex }: { readonly hex: string }): JSX.Element {
  const found = useLoad(async (api, signal) => await screenOf(api, hex, signal), [hex]);
  useEffect(() => {
    if (found.data !== undefined) navigate(`/${found.data}`, { replace: true });
  }, [found.data]);
  return <Loading of={found}>{() => null}</Loading>;
}

async function screenOf(api: TokenDataClient, hex: string, signal: AbortSignal): Promise<string> {
  const [token, block, transaction] = await Promise.all([
    orNull(api.getToken({ path: { address: hex }, signal })),
    orNull(api.getBlock({ path: { block: hex }, signal })),
    api.listTransfers({ query: { txhash: hex, limit: 1 }, signal }),
  ]);
  if (token !== null) return `token/${hex}`;
  if (block !== null) return `block/${block.height}`;
  return `${transaction.results.length > 0 ? 'tx' : 'account'}/${hex}`;
}

function Tokens({ text }: { readonly text: string }): JSX.Element {
  const list = useEndless(
    async (api, at, signal) => {
      const page = Number(at ?? 1);
      const { results, links, count } = await api.listTokens({
        query: { search: text, page, limit: 50 },
        signal,
      });
      return { rows: results, next: links.next === null ? null : String(page + 1), count };
    },
    [text],
  );
  return (
    <Panel title="Tokens">
      <Loading of={list}>
        {({ rows }) => (
          <TokenTable caption="Tokens found" rows={rows} empty="No token has this in its name or symbol." />
        )}
      </Loading>
      <More list={list} />
    </Panel>
  );
}
