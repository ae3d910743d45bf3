import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { TokenDataClient } from 'token-data-service-client';
import { ApiError } from 'token-data-service-client';

import { useEndless, useLoad } from '../loading.ts';
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
        <p>Enter an address, a transaction hash, a block height or a token’s name.</p>
      )}
    </>
  );
}

/** Asks the service what an address or hash is, and goes there. */
function Resolve({ hex }: { readonly hex: string }): JSX.Element {
  const found = useLoad(async (api, signal) => await screenOf(api, hex, signal), [hex]);
  useEffect(() => {
    if (found.data !== undefined) navigate(`/${found.data}/${hex}`, { replace: true });
  }, [found.data, hex]);
  return <Loading of={found}>{() => null}</Loading>;
}

async function screenOf(
  api: TokenDataClient,
  hex: string,
  signal: AbortSignal,
): Promise<'token' | 'tx' | 'account'> {
  const [token, transaction] = await Promise.all([
    api.getToken({ path: { address: hex }, signal }).catch((error: unknown) => {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }),
    api.listTransfers({ query: { txhash: hex, limit: 1 }, signal }),
  ]);
  if (token !== null) return 'token';
  return transaction.results.length > 0 ? 'tx' : 'account';
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
