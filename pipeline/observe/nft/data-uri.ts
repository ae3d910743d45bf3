/** `data:[type][;parameter…][;base64],…`; the data may hold a comma, and a line break. */
const DATA = /^data:([^,]*),(.*)$/is;

/** What a `data:` URI holds, and its type in lower case ('' where it says none); null where it is no such URI. */
export function readDataUri(uri: string): { bytes: Buffer; type: string } | null {
  const [, head, data = ''] = DATA.exec(uri) ?? [];
  if (head === undefined) return null;
  const [type = '', ...parameters] = head.split(';').map((part) => part.trim().toLowerCase());
  const plain = percentDecoded(data);
  const isBase64 = parameters.includes('base64');
  return { type, bytes: isBase64 ? Buffer.from(plain.toString('latin1'), 'base64') : plain };
}

/** Contracts write `100%` and `#1` as they are: what is no escape stays. */
function percentDecoded(text: string): Buffer {
  const parts = text.split(/((?:%[0-9a-fA-F]{2})+)/);
  return Buffer.concat(
    parts.map((part, at) =>
      at % 2 === 1 ? Buffer.from(part.replaceAll('%', ''), 'hex') : Buffer.from(part, 'utf8'),
    ),
  );
}
