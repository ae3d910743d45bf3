import type { Route } from './route.ts';

/** What became known of the caller, for the access log; and what is to be told how the call ended. */
export interface CallerNote {
  keyId?: number;
  userId?: number;
  /** Why a key was refused. */
  refusal?: string;
  /** Called with the answer's status before the answer goes out; gives headers for it. */
  settle?: (status: number) => Promise<Readonly<Record<string, string>>>;
}

/** What the middleware of one request tell each other. */
export interface RequestState {
  requestId: string;
  ip: string;
  /** Of the matched route, as declared. */
  path?: string;
  route?: Route;
  note: CallerNote;
}
