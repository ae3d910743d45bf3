/** Reads the text fields of a form by name, trimmed; '' where there is none. */
export function fieldsOf(form: HTMLFormElement): (name: string) => string {
  const values = new FormData(form);
  return (name) => {
    const value = values.get(name);
    return typeof value === 'string' ? value.trim() : '';
  };
}
