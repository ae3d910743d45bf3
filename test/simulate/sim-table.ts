import type { Row } from '../../infra/clickhouse/row-binary.ts';

interface Version {
  readonly row: Row;
  readonly seq: number;
}

/** A ReplacingMergeTree(seq, is_deleted): all versions of each row that no merge has dropped, in order of insertion. */
export class SimTable {
  readonly name: string;
  readonly #key: readonly string[];
  readonly #versions = new Map<string, Version[]>();

  constructor(name: string, key: readonly string[]) {
    this.name = name;
    this.#key = key;
  }

  idOf(row: Row): string {
    return this.#key.map((column) => String(row[column])).join('|');
  }

  insert(rows: readonly Row[]): void {
    for (const row of rows) {
      const version = { row, seq: Number(row['seq']) };
      const id = this.idOf(row);
      const existing = this.#versions.get(id);
      if (existing === undefined) this.#versions.set(id, [version]);
      else existing.push(version);
    }
  }

  /** Drops all but the newest version of merged rows; of equal versions the last inserted stays. */
  merge(isMerged: () => boolean): void {
    for (const [id, versions] of this.#versions) {
      if (versions.length > 1 && isMerged()) this.#versions.set(id, [newest(versions)]);
    }
  }

  /** The newest version of every row, deleted or not; `pick` chooses among equal versions. */
  latest(pick: (count: number) => number): Row[] {
    return [...this.#versions.values()].map((versions) => {
      const last = newest(versions);
      const equal = versions.filter(({ seq }) => seq === last.seq);
      return (equal.length === 1 ? last : (equal[pick(equal.length)] ?? last)).row;
    });
  }

  /** The rows of a query with FINAL. */
  final(): Row[] {
    return [...this.#versions.values()]
      .map((versions) => newest(versions).row)
      .filter((row) => row['is_deleted'] === 0);
  }

  /** All versions of every row that no merge has dropped. */
  all(): Row[] {
    return [...this.#versions.values()].flatMap((versions) => versions.map(({ row }) => row));
  }

  get(id: string): Row | undefined {
    const versions = this.#versions.get(id);
    return versions === undefined ? undefined : newest(versions).row;
  }
}

function newest(versions: readonly Version[]): Version {
  return versions.reduce((best, one) => (one.seq >= best.seq ? one : best));
}
