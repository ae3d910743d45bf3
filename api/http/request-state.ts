import type { RequestInfo, Route } from './route.ts';

/** The caller for the access log, and the hook to run when the call ends. */
export interface CallerNote {
  keyId?: number;
  userId?: number;
  /** Why a key was rejected. */
  refusal?: string;
  /** Called with the status before the answer is sent; returns headers for it. */
  settle?: (status: number) => Promise<Readonly<Record<string, string>>>;
}

/** State shared by the middleware of one request. */
export interface RequestState {
  requestId: string;
  ip: string;
  /** The declared path of the matched route. */
  path?: string;
  route?: Route;
  /** The place for reads that the request may keep until its answer is sent. */
  place?: RequestInfo['place'];
  /** A `StreamedAnswer`, which may be sent for long. */
  isStreamed?: boolean;
  note: CallerNote;
}
