/** SQL of the shard of an account: its last 10 bits, which are spread evenly because an address is a hash. */
export function shardSql(account: string): string {
  return `toUInt16(reinterpretAsUInt16(reverse(substring(${account}, 31, 2))) % 1024)`;
}
