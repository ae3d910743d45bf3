import type { World } from './world.ts';

/** The target of a figure: required `least`, desired `aim`. */
interface Want {
  readonly better: 'higher' | 'lower';
  readonly least: number;
  readonly aim?: number;
}

export interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly want?: Want;
}

/** A count of the service and the independently computed one; the run fails if they differ. */
export interface Completeness {
  readonly what: string;
  readonly expected: number;
  readonly found: number;
}

export interface Table {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}

export interface CaseReport {
  readonly figures: readonly Figure[];
  readonly completeness: readonly Completeness[];
  readonly tables?: readonly Table[];
  /** How it was measured. */
  readonly notes?: readonly string[];
}

export interface Scale {
  /** Transfers of the chain in `backfill`. */
  readonly transfers: number;
  /** Transfers in the tables of `pages`. */
  readonly rows: number;
  /** Ledger legs of the largest account in `pages`. */
  readonly hotLegs: number;
  /** Kafka brokers in `backfill`. */
  readonly brokers: 1 | 3;
  /** Transfers per generated block. */
  readonly perBlock: number;
  /** Number of samples (blocks, messages, pages, keys); null: the default of each case. */
  readonly samples: number | null;
}

export interface BenchCase {
  readonly name: string;
  readonly summary: string;
  run(world: World, scale: Scale): Promise<CaseReport>;
}

const want =
  (better: Want['better']) =>
  (least: number, aim?: number): Want =>
    aim === undefined ? { better, least } : { better, least, aim };
const higher = want('higher');
const lower = want('lower');

/** Targets for one machine with two cores, in the units of the figures. */
export const wanted = {
  backfillRate: higher(25_000),
  backfillCpu: lower(130),
  rebuildRate: higher(100_000),
  roleMemory: lower(512, 300),
  pageMedian: lower(12),
  pageTail: lower(40, 30),
  pageRate: higher(200, 400),
  pageMedianTogether: lower(80),
  hashMedian: lower(10),
  hashTail: lower(30, 15),
  traceTail: lower(3000),
  politeTail: lower(250),
  balanceMedian: lower(10),
  balanceTail: lower(40),
  historyTail: lower(40),
  hotDayTail: lower(300),
  portfolioTail: lower(120),
  hotPortfolioTail: lower(300),
  holdersMedian: lower(25),
  holdersTail: lower(60),
  periodsTail: lower(60),
  priceHistoryTail: lower(50),
  commandMedian: lower(40),
  commandTail: lower(150),
  commandRate: higher(400),
  refreshMedian: lower(60),
  keyMedian: lower(1),
  keyTail: lower(5),
  keyDeletion: lower(1000),
  headMedian: lower(200),
  headTail: lower(400),
  pipelineMedian: lower(60),
  deliveryRate: higher(1000),
  deliveryMedian: lower(500),
  deliveryTail: lower(2000),
  deliveryTailBesideHanging: lower(3000),
  matching: lower(200),
  exportCsvRate: higher(150_000),
  exportParquetRate: higher(300_000),
  /** Ten times the rows need no more memory. */
  exportMemory: lower(1.2),
  pageBesideExport: lower(1.2),
  streamRate: higher(20_000),
  streamMedian: lower(150),
  streamTail: lower(500),
  streamMemory: lower(200),
  checkMedian: lower(5),
  checkTail: lower(20),
  nftPageTail: lower(80),
  nftOwnerTail: lower(30),
  nftFetchRate: higher(100),
  firstStart: lower(60),
  stop: lower(10),
  secondStart: lower(8),
  idleCpu: lower(10),
} as const;
