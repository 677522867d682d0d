//! Zstandard frames: decoded as a whole, into at most a given number of bytes.
//!
//! A frame that declares a checksum of its content is decoded without comparing it: TensorStore writes none.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::Error;

/// The bytes decoded at a time, so that a frame that is longer than allowed is noticed early.
const STEP: usize = 1 << 20;

/// Decodes all frames of `bytes`; an error if they hold more than `most` bytes.
pub(crate) fn decode(mut bytes: &[u8], most: usize) -> Result<Vec<u8>, Error> {
    // It rejects windows of more than 128 MiB, as libzstd does, and keeps no more of its output than the window.
    let mut decoder = FrameDecoder::new();
    let mut decoded = Vec::new();
    while !bytes.is_empty() {
        match decoder.init(&mut bytes) {
            Ok(()) => {}
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                bytes = bytes
                    .get(length as usize..)
                    .ok_or_else(|| malformed("a skippable frame is truncated"))?;
                continue;
            }
            Err(error @ FrameDecoderError::WindowSizeTooBig { .. }) => {
                return Err(Error::unsupported("zstd", error.to_string()));
            }
            Err(error) => return Err(malformed(error)),
        }
        // At least this many bytes are decoded; the decoder may retain a window of them.
        let mut least = decoded.len();
        loop {
            decoder.decode_blocks(&mut bytes, BlockDecodingStrategy::UptoBytes(STEP)).map_err(malformed)?;
            let ready = decoder.can_collect();
            if !decoder.is_finished() {
                least = least.saturating_add(STEP);
            }
            if least > most || ready > most - decoded.len() {
                return Err(Error::malformed("zstd", format!("it decompresses to more than {most} bytes")));
            }
            decoded.try_reserve(ready).map_err(|_| out_of_memory(ready))?;
            decoder.collect_to_writer(&mut decoded).map_err(malformed)?;
            if decoder.is_finished() {
                break;
            }
        }
    }
    Ok(decoded)
}

fn malformed(why: impl std::fmt::Display) -> Error {
    Error::malformed("zstd", format!("it is not valid Zstandard data: {why}"))
}

fn out_of_memory(bytes: usize) -> Error {
    Error::unsupported("zstd", format!("{bytes} more bytes of memory are not available to decompress it"))
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::decode;

    #[test]
    fn frames_are_decoded_up_to_a_limit() {
        for len in [0_usize, 1, 1000, 300_000, 3 << 20] {
            let bytes: Vec<u8> = (0..len).map(|at| ((at * at) >> 7) as u8).collect();
            for level in [CompressionLevel::Uncompressed, CompressionLevel::Fastest] {
                let packed = compress_to_vec(&bytes[..], level);
                assert!(decode(&packed, len).unwrap() == bytes);
                assert!(decode(&packed, len + 5).unwrap() == bytes);
                if let Some(less) = len.checked_sub(1) {
                    decode(&packed, less).unwrap_err();
                }
                decode(&packed[..packed.len() - 1], len).unwrap_err();
                let twice = [&packed[..], &packed[..]].concat();
                assert_eq!(decode(&twice, 2 * len).unwrap().len(), 2 * len);
            }
        }
    }

    #[test]
    fn a_small_frame_that_declares_much_takes_no_memory() {
        // One segment of 2^40 bytes; a window of 2^31 bytes.
        decode(&[0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0], 1 << 29).unwrap_err();
        decode(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 1, 0, 0], 1 << 29).unwrap_err();
    }
}
