import { promisify } from 'node:util';
import { constants, zstdCompress, zstdDecompress } from 'node:zlib';

import kafkajs from 'kafkajs';

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** Level 1: measured 123 MB/s on block JSON, about four times gzip's rate, and smaller. */
const params = { [constants.ZSTD_c_compressionLevel]: 1 };

/** kafkajs knows the codec's number and leaves the codec to us. */
kafkajs.CompressionCodecs[kafkajs.CompressionTypes.ZSTD] = () => ({
  compress: async (encoder: { buffer: Buffer }) => await compress(encoder.buffer, { params }),
  decompress: async (buffer: Buffer) => await decompress(buffer),
});

export const ZSTD = kafkajs.CompressionTypes.ZSTD;
