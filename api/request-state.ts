import type { CallerNote } from './identify.ts';
import type { Route } from './route.ts';

/** What the middleware of one request tell each other. */
export interface RequestState {
  requestId: string;
  ip: string;
  /** Of the matched route, as declared. */
  path?: string;
  route?: Route;
  note: CallerNote;
}
