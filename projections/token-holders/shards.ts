/** SQL of the shard of `account`: its last 10 bits, which are spread evenly because an address is a hash. */
export const SHARD = 'toUInt16(reinterpretAsUInt16(reverse(substring(account, 31, 2))) % 1024)';
