import { TokenDataClient } from 'token-data-service-client';

/** A log-in. The token is kept in the tab's storage, and sent in a header: no other site can make the browser send it. */
export interface Session {
  readonly token: string;
  /** ISO 8601. */
  readonly expiresAt: string;
  readonly username: string;
}

const NAME = 'session';
/** Tabs of this origin hand the session to a new tab, and end it together. */
const channel = new BroadcastChannel('session');
const listeners = new Set<() => void>();
let current = read();

type Message =
  | { readonly type: 'ask' }
  | { readonly type: 'session'; readonly session: Session }
  | { readonly type: 'end'; readonly token: string };

function read(): Session | null {
  const stored = sessionStorage.getItem(NAME);
  return stored === null ? null : usable(JSON.parse(stored) as Session);
}

function usable(session: Session): Session | null {
  return Date.parse(session.expiresAt) > Date.now() ? session : null;
}

function store(session: Session | null): void {
  current = session;
  if (session === null) sessionStorage.removeItem(NAME);
  else sessionStorage.setItem(NAME, JSON.stringify(session));
  for (const listener of listeners) listener();
}

channel.addEventListener('message', ({ data }: MessageEvent<Message>) => {
  if (data.type === 'ask' && current !== null) send({ type: 'session', session: current });
  if (data.type === 'session' && current === null) store(usable(data.session));
  if (data.type === 'end') forget(data.token);
});

/** A tab may have a newer session than the one that ends. */
function forget(token: string): void {
  if (current?.token === token) store(null);
}

const send = (message: Message): void => channel.postMessage(message);

export const currentSession = (): Session | null => current;

/** Calls `listener` whenever a session begins or ends; returns the end of that. */
export function onSessionChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** How long a new tab waits for the session of another. */
const ASK_MS = 150;

/** Takes over the session of another tab, if there is one. */
export async function adoptSession(): Promise<void> {
  if (current !== null) return;
  send({ type: 'ask' });
  await new Promise<void>((resolve) => {
    const end = onSessionChange(() => resolve());
    setTimeout(() => {
      end();
      resolve();
    }, ASK_MS);
  });
}

/** @throws ApiError with the reason of a rejected log-in */
export async function logIn(username: string, password: string): Promise<void> {
  const { token, expires_at, user } = await clientOf(null).logIn({ body: { username, password } });
  store({ token, expiresAt: expires_at, username: user.username });
}

/** Ends the session here, in the other tabs and at the service. */
export async function logOut(): Promise<void> {
  const ending = current;
  if (ending === null) return;
  endSession(ending);
  // It ends by itself if the service does not answer.
  await clientOf(ending)
    .logOut()
    .catch(() => {});
}

function endSession({ token }: Session): void {
  forget(token);
  send({ type: 'end', token });
}

/** A person waits for the answer: few retries. A session that the service rejects is ended, which shows the log-in. */
export function clientOf(session: Session | null): TokenDataClient {
  return new TokenDataClient({
    baseUrl: location.origin,
    ...(session === null ? {} : { session: session.token }),
    retry: { attempts: 3, maxDelayMs: 5000 },
    fetch: async (input, init) => {
      // It must be called as the window's.
      const answer = await window.fetch(input, init).catch((cause: unknown) => {
        throw new Error('The service could not be reached.', { cause });
      });
      if (answer.status === 401 && session !== null) endSession(session);
      return answer;
    },
  });
}
