//! SipHash-2-4 with 128 bits of output, keyed with the secret of the replicated state.
//!
//! Callers choose their ids and tenants; under a key that they do not know they cannot make two of them
//! collide, so the digest can stand for the name. Source: J.-P. Aumasson and D. J. Bernstein, "SipHash:
//! a fast short-input PRF" (2012), and the 128-bit variant of their reference code.

/// Longest input of [`keyed`] with lengths of one byte: a tag, and two names or ids of at most 128 bytes behind their lengths.
const PARTS_BYTES_MAX: usize = 1 + 2 * (1 + 128);

fn round(v: &mut [u64; 4]) {
    let [mut v0, mut v1, mut v2, mut v3] = *v;
    v0 = v0.wrapping_add(v1);
    v1 = v1.rotate_left(13) ^ v0;
    v0 = v0.rotate_left(32);
    v2 = v2.wrapping_add(v3);
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.wrapping_add(v3);
    v3 = v3.rotate_left(21) ^ v0;
    v2 = v2.wrapping_add(v1);
    v1 = v1.rotate_left(17) ^ v2;
    v2 = v2.rotate_left(32);
    *v = [v0, v1, v2, v3];
}

fn absorb(v: &mut [u64; 4], word: u64) {
    let [_, _, _, v3] = v;
    *v3 ^= word;
    round(v);
    round(v);
    let [v0, ..] = v;
    *v0 ^= word;
}

fn squeeze(v: &mut [u64; 4]) -> u64 {
    for _ in 0..4 {
        round(v);
    }
    let [v0, v1, v2, v3] = *v;
    v0 ^ v1 ^ v2 ^ v3
}

/// A digest in the making.
struct Sip {
    v: [u64; 4],
    /// Bytes that do not fill a word yet, the first one lowest.
    word: u64,
    /// How many bits of it are filled, below 64.
    filled: u32,
    /// Bytes taken so far; only the lowest byte of the count is hashed.
    length: usize,
}

impl Sip {
    fn new(key: u128) -> Sip {
        let k0 = key as u64;
        let k1 = (key >> 64) as u64;
        Sip {
            v: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
            word: 0,
            filled: 0,
            length: 0,
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.bits(u64::from_le_bytes(*word), u64::BITS);
        }
        self.bits(word_of(rest), (rest.len() as u32).wrapping_mul(8));
        self.length = self.length.wrapping_add(bytes.len());
    }

    fn byte(&mut self, byte: u8) {
        self.bits(u64::from(byte), 8);
        self.length = self.length.wrapping_add(1);
    }

    /// Takes the lowest `count` bits, at most 64, of a word that has no others.
    fn bits(&mut self, word: u64, count: u32) {
        let room = u64::BITS.wrapping_sub(self.filled);
        self.word |= word.wrapping_shl(self.filled);
        if count < room {
            self.filled = self.filled.wrapping_add(count);
        } else {
            absorb(&mut self.v, self.word);
            self.word = word.checked_shr(room).unwrap_or(0);
            self.filled = count.wrapping_sub(room);
        }
    }

    fn finish(mut self) -> u128 {
        absorb(&mut self.v, self.word | ((self.length as u64) << 56));
        let [_, _, v2, _] = &mut self.v;
        *v2 ^= 0xee;
        let low = squeeze(&mut self.v);
        let [_, v1, _, _] = &mut self.v;
        *v1 ^= 0xdd;
        let high = squeeze(&mut self.v);
        u128::from(low) | (u128::from(high) << 64)
    }
}

/// The digest of some bytes under a key.
pub(crate) fn sip128(key: u128, bytes: &[u8]) -> u128 {
    let mut sip = Sip::new(key);
    sip.bytes(bytes);
    sip.finish()
}

/// The digest of a tag and up to two names or ids, each behind its length (one byte: both have at most
/// 128), so that no two lists of parts run together.
pub(crate) fn keyed<const N: usize>(key: u128, tag: u8, parts: [&[u8]; N]) -> u128 {
    const { assert!(N <= 2, "at most two names or ids") };
    let length = parts.iter().fold(1usize, |sum, part| {
        sum.saturating_add(part.len()).saturating_add(1)
    });
    if length > PARTS_BYTES_MAX {
        return long(key, tag, parts);
    }
    let mut sip = Sip::new(key);
    sip.byte(tag);
    for part in parts {
        sip.byte(u8::try_from(part.len()).unwrap_or(u8::MAX));
        sip.bytes(part);
    }
    sip.finish()
}

/// Parts longer than any name or id that gets this far.
#[cold]
fn long<const N: usize>(key: u128, tag: u8, parts: [&[u8]; N]) -> u128 {
    let mut bytes = vec![tag];
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    sip128(key, &bytes)
}

/// Up to eight bytes as a word.
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (place, byte) in word.iter_mut().zip(bytes) {
        *place = *byte;
    }
    u64::from_le_bytes(word)
}

/// A fast digest without a key, for telling the calls of one caller apart: whoever makes two of his own
/// calls collide deceives himself. Inputs that differ in one word never collide.
pub(crate) struct Fold(u64);

impl Fold {
    /// Of nothing yet.
    pub(crate) fn new() -> Fold {
        Fold(0)
    }

    /// Adds a number.
    pub(crate) fn number(self, word: u64) -> Fold {
        // Multiplying by an odd number and turning lose nothing.
        Fold((self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Adds a text behind its length.
    pub(crate) fn text(self, text: &str) -> Fold {
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        let folded = words
            .iter()
            .fold(self.number(text.len() as u64), |fold, word| {
                fold.number(u64::from_le_bytes(*word))
            });
        folded.number(word_of(rest))
    }

    /// The digest.
    pub(crate) fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference_key() -> u128 {
        u128::from_le_bytes(std::array::from_fn(|i| i as u8))
    }

    /// First, 8th and 64th rows of the reference implementation's `vectors_sip128`.
    #[test]
    fn agrees_with_the_reference_vectors() {
        let input: Vec<u8> = (0..64).collect();
        let cases: [(usize, u128); 3] = [
            (
                0,
                u128::from_le_bytes([
                    0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7,
                    0x55, 0x02, 0x93,
                ]),
            ),
            (
                1,
                u128::from_le_bytes([
                    0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b,
                    0x22, 0xfc, 0x45,
                ]),
            ),
            (
                2,
                u128::from_le_bytes([
                    0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6,
                    0x0a, 0xff, 0xe4,
                ]),
            ),
        ];
        for (length, expected) in cases {
            let got = sip128(reference_key(), &input[..length]);
            assert_eq!(got, expected, "length {length}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_hashed_as_one_text(
            key: u128,
            first in prop::collection::vec(any::<u8>(), 0..=128),
            second in prop::collection::vec(any::<u8>(), 0..=128),
        ) {
            let mut text = vec![b'a', first.len() as u8];
            text.extend_from_slice(&first);
            prop_assert_eq!(keyed(key, b'a', [&first]), sip128(key, &text));
            text.push(second.len() as u8);
            text.extend_from_slice(&second);
            prop_assert_eq!(keyed(key, b'a', [&first, &second]), sip128(key, &text));
        }
    }

    #[test]
    fn parts_do_not_run_together() {
        let parts: [[&[u8]; 2]; 4] = [[b"ab", b"c"], [b"a", b"bc"], [b"", b"abc"], [b"abc", b""]];
        let long = [[&[1; 200][..], &[1; 100]], [&[1; 100], &[1; 200]]];
        let mut digests: Vec<u128> = parts.map(|parts| keyed(7, b'a', parts)).to_vec();
        digests.extend(long.map(|parts| keyed(7, b'a', parts)));
        digests.push(keyed(7, b'b', [b"ab", b"c"]));
        digests.push(keyed(8, b'a', [b"ab", b"c"]));
        let count = digests.len();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }

    #[test]
    fn calls_that_differ_are_told_apart() {
        let mut digests = Vec::new();
        for units in 0..1_000 {
            for text in ["requests", "tokens", "tokens_in_a_name_of_many_words"] {
                digests.push(Fold::new().text(text).number(units).finish());
                digests.push(Fold::new().number(units).text(text).finish());
            }
        }
        let count = digests.len();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }
}
