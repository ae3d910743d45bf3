import { render } from 'preact';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import { useReturns } from './in-view.ts';
import { followLinks, navigate, usePlace } from './router.ts';
import { Account } from './screens/account.tsx';
import { Block } from './screens/block.tsx';
import { Home } from './screens/home.tsx';
import { Keys } from './screens/keys.tsx';
import { LogIn } from './screens/log-in.tsx';
import { Operations } from './screens/operations.tsx';
import { Search } from './screens/search.tsx';
import { Token } from './screens/token.tsx';
import { Transaction } from './screens/transaction.tsx';
import { PublicVerification } from './screens/verification.tsx';
import { Webhook } from './screens/webhook.tsx';
import { Webhooks } from './screens/webhooks.tsx';
import { asFelt } from './search.ts';
import { adoptSession, clientOf, currentSession, logOut, onSessionChange } from './session.ts';
import './style.css';

/** On a narrow screen with the short text, on which all links fit in one line; none: the brand leads there too. */
const links = [
  ['/', 'Home', ''],
  ['/keys', 'API keys', 'Keys'],
  ['/webhooks', 'Webhooks', 'Webhooks'],
  ['/verification', 'Verification', 'Verification'],
] as const;

/** What the service shows to anyone is shown without a log-in. */
const isPublic = (path: string): boolean => /^\/verification\/?$/.test(path);

/**
 * The screen of a path; null: there is none.
 *
 * @param round a new value reloads live screens
 */
function screenOf(path: string, round: number): JSX.Element | null {
  const [, name = '', id] = path.split('/');
  const felt = asFelt(id ?? '');
  if (id === undefined || id === '') {
    if (name === '') return <Home key={round} />;
    if (name === 'search') return <Search />;
    if (name === 'keys') return <Keys />;
    if (name === 'webhooks') return <Webhooks />;
    if (name === 'operations') return <Operations />;
    if (name === 'verification') return <PublicVerification />;
    return null;
  }
  if (name === 'account' && felt !== null) return <Account key={felt} address={felt} />;
  if (name === 'token' && felt !== null) return <Token key={`${felt} ${round}`} address={felt} />;
  if (name === 'tx' && felt !== null) return <Transaction key={felt} hash={felt} />;
  if (name === 'block' && /^\d{1,10}$/.test(id)) return <Block key={id} height={Number(id)} />;
  if (name === 'webhooks' && /^\d{1,15}$/.test(id)) return <Webhook key={id} id={Number(id)} />;
  return null;
}

function useSession(): ReturnType<typeof currentSession> {
  const [session, setSession] = useState(currentSession);
  useEffect(() => onSessionChange(() => setSession(currentSession())), []);
  return session;
}

/** Whether the service shows its operations to the user; asked once a session. */
function useIsAdmin(session: ReturnType<typeof currentSession>): boolean {
  const [isAdmin, setAdmin] = useState(false);
  useEffect(() => {
    setAdmin(false);
    if (session === null) return;
    const ended = new AbortController();
    clientOf(session)
      .listOperations({ signal: ended.signal })
      .then(() => setAdmin(true))
      // Others are answered 403; an unavailable service shows no operations either.
      .catch(() => {});
    return () => ended.abort();
  }, [session]);
  return isAdmin;
}

function SearchBox(): JSX.Element {
  const { path, query } = usePlace();
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const field = (event.currentTarget as HTMLFormElement).elements.namedItem('q') as HTMLInputElement;
    if (field.value.trim() !== '') navigate(`/search?${new URLSearchParams({ q: field.value.trim() })}`);
  };
  return (
    <form class="search" role="search" onSubmit={submit}>
      <label class="hidden" for="q">
        Search for an address, transaction, block or token
      </label>
      <input
        id="q"
        name="q"
        type="search"
        autocomplete="off"
        spellcheck={false}
        placeholder="Address, transaction, block or token"
        key={path === '/search' ? query.get('q') : ''}
        defaultValue={path === '/search' ? (query.get('q') ?? '') : ''}
      />
      <button type="submit">Search</button>
    </form>
  );
}

function App(): JSX.Element {
  const { path } = usePlace();
  const session = useSession();
  const isAdmin = useIsAdmin(session);
  const returns = useReturns();
  const isCurrent = (to: string): boolean => (to === '/' ? path === '/' : path.startsWith(to));
  return (
    <>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <header class="bar">
        <a class="brand" href="/">
          <img src="/favicon.svg" alt="" width={20} height={20} /> Token data
        </a>
        {session !== null && <SearchBox />}
        <nav aria-label="Main">
          {links
            .filter(([to]) => session !== null || isPublic(to))
            .map(([to, text, short]) => (
              <a key={to} href={to} aria-current={isCurrent(to) ? 'page' : undefined}>
                <span class="long">{text}</span>
                <span class="short">{short}</span>
              </a>
            ))}
          {session === null && isPublic(path) && <a href="/">Log in</a>}
          {isAdmin && (
            <a href="/operations" aria-current={isCurrent('/operations') ? 'page' : undefined}>
              Operations
            </a>
          )}
          <a href="/docs" data-page>
            <span class="long">API reference</span>
            <span class="short">API</span>
          </a>
        </nav>
        {session !== null && (
          <button type="button" title={`Logged in as ${session.username}`} onClick={() => void logOut()}>
            Log out
          </button>
        )}
      </header>
      <main id="main" tabIndex={-1}>
        {session === null && !isPublic(path) ? <LogIn /> : (screenOf(path, returns) ?? <NotFound />)}
      </main>
    </>
  );
}

function NotFound(): JSX.Element {
  return (
    <>
      <h1>Not found</h1>
      <p>
        There is no such page. <a href="/">Home</a>
      </p>
    </>
  );
}

followLinks();
void adoptSession().then(() => {
  const root = document.getElementById('app');
  if (root !== null) render(<App />, root);
});
