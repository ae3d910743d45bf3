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
  backfillRate: higher(10_000, 20_000),
  rebuildRate: higher(25_000, 60_000),
  roleMemory: lower(512, 300),
  pageMedian: lower(20, 10),
  pageTail: lower(60, 30),
  pageRate: higher(150, 400),
  hashTail: lower(30, 15),
  traceTail: lower(3000),
  politeTail: lower(250),
  balanceMedian: lower(10),
  balanceTail: lower(40),
  historyTail: lower(60),
  hotDayTail: lower(300),
  portfolioTail: lower(120),
  hotPortfolioTail: lower(500),
  priceHistoryTail: lower(60),
  commandMedian: lower(40),
  commandTail: lower(150),
  commandRate: higher(200, 400),
  refreshMedian: lower(60),
  keyMedian: lower(1),
  keyTail: lower(5),
  keyDeletion: lower(1000),
  headMedian: lower(1000, 300),
  headTail: lower(3000, 1000),
  pipelineMedian: lower(150, 50),
  deliveryRate: higher(1000),
  deliveryMedian: lower(500),
  deliveryTail: lower(2000),
  deliveryTailBesideHanging: lower(3000),
  matching: lower(200),
  checkMedian: lower(5),
  checkTail: lower(20),
  nftPageTail: lower(80),
  nftOwnerTail: lower(30),
  nftFetchRate: higher(100),
  firstStart: lower(60),
  stop: lower(10),
  secondStart: lower(20),
} as const;
