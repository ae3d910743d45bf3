/** Saves a text as a file of the browser's user. */
export function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/csv;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The download reads it after the click.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
