import type { z } from 'zod';

import { invalidInput } from './errors.ts';

/** The part of a zod issue that messages are made from. */
interface Issue {
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

function wrongType({ input, expected }: Issue): string {
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

/** Messages of Django REST framework, as the contract requires. A schema's own message takes precedence. */
function describeIssue(issue: Issue): string | undefined {
  switch (issue.code ?? '') {
    case 'invalid_type':
      return wrongType(issue);
    case 'too_small':
      if (issue.origin === 'string') {
        return issue.minimum === 1
          ? 'This field may not be blank.'
          : `Ensure this field has at least ${String(issue.minimum)} characters.`;
      }
      if (issue.origin === 'array') {
        return issue.minimum === 1
          ? 'This list may not be empty.'
          : `Ensure this field has at least ${String(issue.minimum)} elements.`;
      }
      return `Ensure this value is greater than or equal to ${String(issue.minimum)}.`;
    case 'too_big':
      if (issue.origin === 'string')
        return `Ensure this field has no more than ${String(issue.maximum)} characters.`;
      if (issue.origin === 'array')
        return `Ensure this field has no more than ${String(issue.maximum)} elements.`;
      return `Ensure this value is less than or equal to ${String(issue.maximum)}.`;
    case 'invalid_value':
      return `"${String(issue.input).slice(0, 100)}" is not a valid choice.`;
    case 'invalid_format':
      return issue.format === 'url' ? 'Enter a valid URL.' : 'Not a valid value.';
    default:
      return undefined;
  }
}

/** Parses one part of a request; throws 400 listing every invalid field. */
export function parseInput<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const parsed = schema.safeParse(value, { error: describeIssue });
  if (parsed.success) return parsed.data;
  const errors: Record<string, string[]> = Object.create(null);
  let mistyped: string | null = null;
  for (const { code, path, message } of parsed.error.issues) {
    const name = path.join('.');
    // Zod also checks the length of a text where it expects a list.
    if (code === 'too_big' && name === mistyped) continue;
    if (code === 'invalid_type') mistyped = name;
    const [field, ...rest] = path.map(String);
    const text = rest.length === 0 ? message : `${rest.join('.')}: ${message}`;
    const texts = (errors[field ?? 'non_field_errors'] ??= []);
    // Zod reports an integer above 2^53 - 1 twice if that is also the maximum of the field.
    if (!texts.includes(text)) texts.push(text);
  }
  throw invalidInput(errors);
}
