/** What an account exchanged with another one. */
export interface Counterparty {
  readonly address: string;
  readonly transfers: number;
  /** In the smallest unit of the token. */
  readonly sent: bigint;
  readonly received: bigint;
}

/** Of a row of transfers. */
interface Moved {
  readonly from_address: string;
  readonly to_address: string;
  readonly value: string;
  readonly is_fee: boolean;
}

/** Of an account's transfers of one token without fees: its counterparties, the largest first. */
export function counterpartiesOf(account: string, rows: readonly Moved[]): Counterparty[] {
  const found = new Map<string, Counterparty>();
  for (const { from_address: from, to_address: to, value, is_fee } of rows) {
    if (is_fee || from === to) continue;
    const address = from === account ? to : from;
    const known = found.get(address) ?? { address, transfers: 0, sent: 0n, received: 0n };
    const amount = BigInt(value);
    const sides = from === account ? { sent: known.sent + amount } : { received: known.received + amount };
    found.set(address, { ...known, ...sides, transfers: known.transfers + 1 });
  }
  return [...found.values()].toSorted(
    (a, b) =>
      Number(exchanged(b) > exchanged(a)) - Number(exchanged(b) < exchanged(a)) ||
      b.transfers - a.transfers ||
      (a.address < b.address ? -1 : 1),
  );
}

const exchanged = ({ sent, received }: Pick<Counterparty, 'sent' | 'received'>): bigint => sent + received;

export interface GraphNode {
  readonly address: string;
  /** From the centre, which is the root. */
  readonly x: number;
  readonly y: number;
  /** Of its direction from the centre, in degrees; clockwise from the right. */
  readonly angle: number;
}

export interface GraphEdge extends Counterparty {
  /** The account whose counterparty it is. */
  readonly of: string;
  /** Its amount by the largest one: 0 to 1. */
  readonly share: number;
}

export interface Graph {
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly GraphEdge[];
  /** Holds all nodes and their labels, which point away from the centre. */
  readonly box: {
    readonly left: number;
    readonly top: number;
    readonly width: number;
    readonly height: number;
  };
}

/** Shown counterparties of the root, and of each account that is expanded. */
export const MAX_OF_ROOT = 20;
export const MAX_OF_OTHERS = 10;
const RING = 190;
const LABEL = 125;
const ROOM = 25;

/**
 * Places accounts on rings about the root: each in the sector of the account that led to it, which is as wide as it has
 * accounts at its end. An account is shown once; a pair has one edge.
 *
 * @param known the counterparties of the root and of each expanded account
 */
export function graphOf(root: string, known: ReadonlyMap<string, readonly Counterparty[]>): Graph {
  const children = new Map<string, string[]>([[root, []]]);
  const edges = new Map<string, Omit<GraphEdge, 'share'>>();
  // Breadth first: the list grows while it is walked.
  for (const [account, own] of children) {
    const most = account === root ? MAX_OF_ROOT : MAX_OF_OTHERS;
    for (const one of (known.get(account) ?? []).slice(0, most)) {
      const pair = [account, one.address].toSorted().join();
      if (!edges.has(pair)) edges.set(pair, { ...one, of: account });
      if (children.has(one.address)) continue;
      children.set(one.address, []);
      own.push(one.address);
    }
  }
  const nodes: GraphNode[] = [];
  const leaves = (account: string): number =>
    Math.max(
      1,
      (children.get(account) ?? []).reduce((sum, one) => sum + leaves(one), 0),
    );
  // The label of the root stands above it.
  const ends: (readonly [x: number, y: number])[] = [
    [-LABEL / 2, 0],
    [LABEL / 2, 0],
  ];
  const place = (account: string, depth: number, from: number, to: number): void => {
    const angle = (from + to) / 2;
    const radians = (angle * Math.PI) / 180;
    const at = (radius: number) => [radius * Math.cos(radians), radius * Math.sin(radians)] as const;
    const [x, y] = at(depth * RING);
    nodes.push({ address: account, angle, x, y });
    if (depth > 0) ends.push([x, y], at(depth * RING + LABEL));
    const width = (to - from) / leaves(account);
    let start = from;
    for (const child of children.get(account) ?? []) {
      const end = start + width * leaves(child);
      place(child, depth + 1, start, end);
      start = end;
    }
  };
  place(root, 0, -90, 270);
  const largest = [...edges.values()].map(exchanged).reduce((most, one) => (one > most ? one : most), 1n);
  return {
    nodes,
    box: boxOf(ends),
    edges: [...edges.values()].map((edge) => ({
      ...edge,
      share: Number((exchanged(edge) * 1000n) / largest) / 1000,
    })),
  };
}

function boxOf(points: readonly (readonly [x: number, y: number])[]): Graph['box'] {
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, top] = [Math.min(...xs) - ROOM, Math.min(...ys) - ROOM];
  return { left, top, width: Math.max(...xs) + ROOM - left, height: Math.max(...ys) + ROOM - top };
}
