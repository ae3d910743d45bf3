/** `data:[type][;parameter…][;base64],…`; the data may contain commas and line breaks. */
const DATA = /^data:([^,]*),(.*)$/is;

/** Decodes a `data:` URI, its media type in lower case ('' without one); null for any other URI. */
export function readDataUri(uri: string): { bytes: Buffer; type: string } | null {
  const [, head, data = ''] = DATA.exec(uri) ?? [];
  if (head === undefined) return null;
  const [type = '', ...parameters] = head.split(';').map((part) => part.trim().toLowerCase());
  const plain = percentDecoded(data);
  const isBase64 = parameters.includes('base64');
  return { type, bytes: isBase64 ? Buffer.from(plain.toString('latin1'), 'base64') : plain };
}

/** Leaves invalid escapes as they are: contracts write `100%` unescaped. */
function percentDecoded(text: string): Buffer {
  const parts = text.split(/((?:%[0-9a-fA-F]{2})+)/);
  return Buffer.concat(
    parts.map((part, at) =>
      at % 2 === 1 ? Buffer.from(part.replaceAll('%', ''), 'hex') : Buffer.from(part, 'utf8'),
    ),
  );
}
