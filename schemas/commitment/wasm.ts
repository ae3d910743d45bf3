/*
 * Generates a WebAssembly module that computes in Starknet's field, because JavaScript has no 64-bit products: BigInt takes
 * thirty times as long.
 *
 * A number is nine limbs of 29 bits, each an i32 in memory, the top one signed. Its value is anything congruent to the
 * felt between -P and 2P, in Montgomery form (times 2^261). Nine products of limbs and the carries fit into an i64.
 */

export const LIMBS = 9;
export const LIMB_BITS = 29;
export const NUMBER_BYTES = 4 * LIMBS;

const MASK = 2 ** LIMB_BITS - 1;
/** P = 1 + 17·2^192 + 2^251, so reducing a limb changes limb 6 by a multiple of MIDDLE and limb 8 by one of 2^TOP_BITS. */
const MIDDLE = 17 * 2 ** (192 - 6 * LIMB_BITS);
const TOP_BITS = 251 - 8 * LIMB_BITS;

type Code = readonly number[];

const I64 = 0x7e;
const I32 = 0x7f;
const ADD: Code = [0x7c];
const SUBTRACT: Code = [0x7d];
const MULTIPLY: Code = [0x7e];
const AND: Code = [0x83];
const SHIFT_LEFT: Code = [0x86];
const SHIFT_RIGHT: Code = [0x87];

const get = (local: number): Code => [0x20, ...unsigned(local)];
const set = (local: number): Code => [0x21, ...unsigned(local)];
const tee = (local: number): Code => [0x22, ...unsigned(local)];
const load = (limb: number): Code => [0x34, 2, ...unsigned(4 * limb)];
const store = (limb: number): Code => [0x3e, 2, ...unsigned(4 * limb)];
const constant = (value: number): Code => [0x42, ...signed(value)];
const call = (callee: number, addresses: readonly number[]): Code => [
  ...addresses.flatMap((address) => [0x41, ...signed(address)]),
  0x10,
  callee,
];

function unsigned(value: number): number[] {
  return value < 128 ? [value] : [(value % 128) + 128, ...unsigned(Math.floor(value / 128))];
}

function signed(value: number): number[] {
  return value >= -64 && value < 64
    ? [value & 127]
    : [(value & 127) + 128, ...signed(Math.floor(value / 128))];
}

function range<T>(length: number, make: (index: number) => T): T[] {
  return Array.from({ length }, (_, index) => make(index));
}

/** Locals of a function: its parameters, then numbers of nine locals each. */
const numberAt = (parameters: number, index: number): number[] =>
  range(LIMBS, (limb) => parameters + LIMBS * index + limb);

const loadNumber = (address: number, into: readonly number[]): Code =>
  into.flatMap((local, limb) => [...get(address), ...load(limb), ...set(local)]);

const storeNumber = (address: number, from: readonly number[]): Code =>
  from.flatMap((local, limb) => [...get(address), ...get(local), ...store(limb)]);

/** The sum of the products of one column of a·b. */
function columnOf(a: readonly number[], b: readonly number[], column: number): Code {
  return range(LIMBS, (i) => [a[i], b[column - i]] as const)
    .flatMap(([x, y]) => (x === undefined || y === undefined ? [] : [[...get(x), ...get(y), ...MULTIPLY]]))
    .flatMap((term, index) => (index === 0 ? term : [...term, ...ADD]));
}

/** The same for a·a, with half as many products: all but the middle one of a column occur twice. */
function squareColumnOf(a: readonly number[], column: number): Code {
  const lower = range(LIMBS, (i) => (2 * i < column ? a[i] : undefined));
  const pairs = range(LIMBS, (i) => [lower[i], a[column - i]] as const).flatMap(([x, y]) =>
    x === undefined || y === undefined ? [] : [[...get(x), ...get(y), ...MULTIPLY]],
  );
  const code = pairs.flatMap((term, index) => (index === 0 ? term : [...term, ...ADD]));
  const twice = code.length === 0 ? [] : [...code, ...constant(1), ...SHIFT_LEFT];
  const middle = a[column / 2];
  if (middle === undefined) return twice;
  return [...twice, ...get(middle), ...get(middle), ...MULTIPLY, ...(twice.length === 0 ? [] : ADD)];
}

/**
 * out = a·b / 2^261 modulo P, column by column: `m` are the multiples of P that are subtracted, `carry` is a free local. A
 * limb of `out` is set after the last use of the same limb of `a` and `b`.
 */
function reduce(columns: readonly Code[], m: readonly number[], out: readonly number[], carry: number): Code {
  const code: number[] = [];
  for (const [index, column] of columns.entries()) {
    code.push(...column);
    const [middle, top] = [m[index - 6], m[index - 8]];
    if (middle !== undefined) code.push(...get(middle), ...constant(MIDDLE), ...MULTIPLY, ...SUBTRACT);
    if (top !== undefined) code.push(...get(top), ...constant(TOP_BITS), ...SHIFT_LEFT, ...SUBTRACT);
    if (index > 0) code.push(...get(carry), ...ADD);
    code.push(...splitLimb([...m, ...out][index] ?? NaN, carry));
  }
  return [...code, ...get(carry), ...set(out[LIMBS - 1] ?? NaN)];
}

/** Pops a sum, and sets `limb` to its lowest bits and `carry` to the rest. */
const splitLimb = (limb: number, carry: number): Code => [
  ...tee(carry),
  ...constant(MASK),
  ...AND,
  ...set(limb),
  ...get(carry),
  ...constant(LIMB_BITS),
  ...SHIFT_RIGHT,
  ...set(carry),
];

/** Brings limbs that are sums back to 29 bits, and the value to between -P and 2P. */
function normalise(limbs: readonly number[], carry: number): Code {
  const code: number[] = [];
  const [first, middle, top] = [limbs[0] ?? NaN, limbs[6] ?? NaN, limbs[8] ?? NaN];
  for (const local of limbs) {
    code.push(...get(local), ...(local === first ? [] : [...get(carry), ...ADD]));
    if (local !== top) code.push(...splitLimb(local, carry));
  }
  code.push(...tee(top), ...constant(TOP_BITS), ...SHIFT_RIGHT, ...set(carry));
  code.push(...get(top), ...constant(2 ** TOP_BITS - 1), ...AND, ...set(top));
  code.push(...get(first), ...get(carry), ...SUBTRACT, ...set(first));
  code.push(...get(middle), ...get(carry), ...constant(MIDDLE), ...MULTIPLY, ...SUBTRACT, ...set(middle));
  return code;
}

const COLUMNS = 2 * LIMBS - 1;

/** multiply(a, b, out): addresses of numbers. */
function multiply(): Code {
  const [a, b, m, carry] = [numberAt(3, 0), numberAt(3, 1), numberAt(3, 2), 3 + 3 * LIMBS];
  const columns = range(COLUMNS, (column) => columnOf(a, b, column));
  return [...loadNumber(0, a), ...loadNumber(1, b), ...reduce(columns, m, a, carry), ...storeNumber(2, a)];
}

/** cube(a): in place. */
function cube(): Code {
  const [a, square, m, carry] = [numberAt(1, 0), numberAt(1, 1), numberAt(1, 2), 1 + 3 * LIMBS];
  return [
    ...loadNumber(0, a),
    ...reduce(
      range(COLUMNS, (column) => squareColumnOf(a, column)),
      m,
      square,
      carry,
    ),
    ...reduce(
      range(COLUMNS, (column) => columnOf(a, square, column)),
      m,
      a,
      carry,
    ),
    ...storeNumber(0, a),
  ];
}

/** add(a, b): a += b. */
function add(): Code {
  const [a, carry] = [numberAt(2, 0), 2 + LIMBS];
  const sums = a.flatMap((local, limb) => [
    ...get(0),
    ...load(limb),
    ...get(1),
    ...load(limb),
    ...ADD,
    ...set(local),
  ]);
  return [...sums, ...normalise(a, carry), ...storeNumber(0, a)];
}

/** mix(state, constants): the state (a, b, c) times the matrix (3 1 1, 1 -1 1, 1 1 -2), plus three constants. */
function mix(): Code {
  const state = [numberAt(2, 0), numberAt(2, 1), numberAt(2, 2)];
  const sum = 2 + 3 * LIMBS;
  const carry = sum + 1;
  const code: number[] = [];
  for (const limb of range(LIMBS, (index) => index)) {
    const locals = state.map((number) => number[limb] ?? NaN);
    for (const [index, local] of locals.entries())
      code.push(...get(0), ...load(limb + LIMBS * index), ...tee(local), ...(index === 0 ? [] : ADD));
    code.push(...set(sum));
    for (const [index, local] of locals.entries()) {
      code.push(...get(sum), ...get(local), ...constant([2, -2, -3][index] ?? NaN), ...MULTIPLY, ...ADD);
      code.push(...get(1), ...load(limb + LIMBS * index), ...ADD, ...set(local));
    }
  }
  for (const number of state) code.push(...normalise(number, carry));
  return [...code, ...storeNumber(0, state.flat())];
}

const FULL_ROUNDS = 8;
const PARTIAL_ROUNDS = 83;
export const ROUNDS = FULL_ROUNDS + PARTIAL_ROUNDS;

/** Where the numbers of a computation are in memory. */
export const layout = {
  state: 0,
  operand: 3 * NUMBER_BYTES,
  /** Three constants a round, and three zeroes for the last mix. */
  constants: 4 * NUMBER_BYTES,
} as const;

/** permute(): the Hades permutation of the state, without loops. A partial round cubes the last number only. */
function permute(): Code {
  const numbers = range(3, (index) => layout.state + NUMBER_BYTES * index);
  const constantsOf = (round: number) => layout.constants + 3 * NUMBER_BYTES * round;
  const code = numbers.flatMap((number, index) =>
    call(ADD_NUMBERS, [number, constantsOf(0) + NUMBER_BYTES * index]),
  );
  for (let round = 0; round < ROUNDS; round += 1) {
    const isPartial = round >= FULL_ROUNDS / 2 && round < FULL_ROUNDS / 2 + PARTIAL_ROUNDS;
    for (const number of numbers.slice(isPartial ? -1 : 0)) code.push(...call(CUBE, [number]));
    code.push(...call(MIX, [layout.state, constantsOf(round + 1)]));
  }
  return code;
}

const [MULTIPLY_NUMBERS, CUBE, ADD_NUMBERS, MIX, PERMUTE] = [0, 1, 2, 3, 4];

const MAGIC_AND_VERSION: Code = [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0];

const vector = (items: readonly Code[]): Code => [...unsigned(items.length), ...items.flat()];
const sized = (content: Code): Code => [...unsigned(content.length), ...content];
const section = (id: number, content: Code): Code => [id, ...sized(content)];
const exported = (name: string, kind: number, index: number): Code => [
  ...sized([...Buffer.from(name)]),
  kind,
  index,
];

/** Exports `memory`, `multiply(a, b, out)`, `add(a, b)` and `permute()`. */
export function poseidonModule(): Uint8Array<ArrayBuffer> {
  const functions = [
    { parameters: 3, locals: 3 * LIMBS + 1, code: multiply() },
    { parameters: 1, locals: 3 * LIMBS + 1, code: cube() },
    { parameters: 2, locals: LIMBS + 1, code: add() },
    { parameters: 2, locals: 3 * LIMBS + 2, code: mix() },
    { parameters: 0, locals: 0, code: permute() },
  ];
  const types = functions.map(({ parameters }) => [0x60, ...vector(range(parameters, () => [I32])), 0]);
  const bodies = functions.map(({ locals, code }) =>
    sized([...vector(locals === 0 ? [] : [[...unsigned(locals), I64]]), ...code, 0x0b]),
  );
  return Uint8Array.from([
    ...MAGIC_AND_VERSION,
    ...section(1, vector(types)),
    ...section(3, vector(functions.map((_, index) => [index]))),
    ...section(5, vector([[0, 1]])),
    ...section(
      7,
      vector([
        exported('memory', 2, 0),
        exported('multiply', 0, MULTIPLY_NUMBERS),
        exported('add', 0, ADD_NUMBERS),
        exported('permute', 0, PERMUTE),
      ]),
    ),
    ...section(10, vector(bodies)),
  ]);
}
