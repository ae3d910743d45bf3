/**
 * What the service says about a field, and about the items of a list: `events[0]` counts as `events`. In a list of objects, the text
 * `0.address: Not a valid string.` about `subscriptions` is one about `subscriptions.address`.
 */
export function fieldErrors(errors: Readonly<Record<string, readonly string[]>>, field: string): string[] {
  const [list, item] = field.split('.');
  return Object.entries(errors).flatMap(([name, texts]) => {
    if (name === field || name.startsWith(`${field}[`) || name.startsWith(`${field}.`)) return texts;
    if (name !== list || item === undefined) return [];
    return texts.flatMap((text) => {
      const [, of, what = ''] = /^\d+\.(\w+): (.*)$/s.exec(text) ?? [];
      return of === item ? [what] : [];
    });
  });
}
