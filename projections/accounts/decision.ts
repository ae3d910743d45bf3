/**
 * What a decider returns: the outcome that is kept, and the changes that the transaction makes. Deciders are pure:
 * state and command in, decision out. A rule released for a `v` never changes, so that a replay decides the same.
 */
export interface Decision<C> {
  readonly outcome: Outcome;
  /** Empty when refused. */
  readonly changes: readonly C[];
}

export type Outcome =
  | { readonly accepted: true; readonly result: Readonly<Record<string, unknown>> }
  | { readonly accepted: false; readonly result: { readonly code: RefusalCode; readonly detail: string } };

export type RefusalCode = 'NOT_FOUND' | 'CONFLICT';

export function accept<C>(result: Readonly<Record<string, unknown>>, ...changes: C[]): Decision<C> {
  return { outcome: { accepted: true, result }, changes };
}

export function refuse<C>(code: RefusalCode, detail: string): Decision<C> {
  return { outcome: { accepted: false, result: { code, detail } }, changes: [] };
}
