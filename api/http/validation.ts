import type { z } from 'zod';

import { invalidInput } from './errors.ts';

/** What the error map of zod is told about a fault. */
interface Fault {
  readonly code?: string | undefined;
  readonly input?: unknown;
  readonly expected?: unknown;
  readonly origin?: unknown;
  readonly minimum?: unknown;
  readonly maximum?: unknown;
  readonly format?: unknown;
}

const typeName = (value: unknown): string => {
  if (Array.isArray(value)) return 'list';
  const names: Record<string, string> = { string: 'str', number: 'int', boolean: 'bool', object: 'dict' };
  return names[typeof value] ?? typeof value;
};

function wrongType({ input, expected }: Fault): string {
  if (input === undefined) return 'This field is required.';
  if (input === null) return 'This field may not be null.';
  switch (expected) {
    case 'string':
      return 'Not a valid string.';
    case 'int':
      return 'A valid integer is required.';
    case 'number':
      return 'A valid number is required.';
    case 'boolean':
      return 'Must be a valid boolean.';
    case 'array':
      return `Expected a list of items but got type "${typeName(input)}".`;
    case 'object':
    case 'record':
      return `Invalid data. Expected a dictionary, but got ${typeName(input)}.`;
    default:
      return 'Not a valid value.';
  }
}

/** The texts of the framework that the contract speaks like. A schema's own message goes before these. */
function describeFault(fault: Fault): string | undefined {
  switch (fault.code ?? '') {
    case 'invalid_type':
      return wrongType(fault);
    case 'too_small':
      if (fault.origin === 'string') {
        return fault.minimum === 1
          ? 'This field may not be blank.'
          : `Ensure this field has at least ${String(fault.minimum)} characters.`;
      }
      if (fault.origin === 'array') {
        return fault.minimum === 1
          ? 'This list may not be empty.'
          : `Ensure this field has at least ${String(fault.minimum)} elements.`;
      }
      return `Ensure this value is greater than or equal to ${String(fault.minimum)}.`;
    case 'too_big':
      if (fault.origin === 'string')
        return `Ensure this field has no more than ${String(fault.maximum)} characters.`;
      if (fault.origin === 'array')
        return `Ensure this field has no more than ${String(fault.maximum)} elements.`;
      return `Ensure this value is less than or equal to ${String(fault.maximum)}.`;
    case 'invalid_value':
      return `"${String(fault.input).slice(0, 100)}" is not a valid choice.`;
    case 'invalid_format':
      return fault.format === 'url' ? 'Enter a valid URL.' : 'Not a valid value.';
    default:
      return undefined;
  }
}

/** Parses one part of a request; throws 400 that names every wrong field. */
export function parseInput<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const parsed = schema.safeParse(value, { error: describeFault });
  if (parsed.success) return parsed.data;
  const errors: Record<string, string[]> = Object.create(null);
  for (const { path, message } of parsed.error.issues) {
    const [field, ...rest] = path.map(String);
    const text = rest.length === 0 ? message : `${rest.join('.')}: ${message}`;
    (errors[field ?? 'non_field_errors'] ??= []).push(text);
  }
  throw invalidInput(errors);
}
