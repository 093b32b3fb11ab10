//! SipHash-2-4 with 128 bits of output, keyed with the secret of the replicated state.
//!
//! Callers choose their ids and tenants; under a key that they do not know they cannot make two of them
//! collide, so the digest can stand for the name. Source: J.-P. Aumasson and D. J. Bernstein, "SipHash:
//! a fast short-input PRF" (2012), and the 128-bit variant of their reference code.

/// A keyed hash in progress.
pub(crate) struct Hasher {
    v: [u64; 4],
    tail: u64,
    length: u64,
}

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

impl Hasher {
    /// A hash under a key.
    pub(crate) fn new(key: u128) -> Hasher {
        let k0 = key as u64;
        let k1 = (key >> 64) as u64;
        Hasher {
            v: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
            tail: 0,
            length: 0,
        }
    }

    /// Adds bytes.
    pub(crate) fn write(mut self, bytes: &[u8]) -> Hasher {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.take(u64::from_le_bytes(*word), 8);
        }
        let mut last = [0; 8];
        for (place, byte) in last.iter_mut().zip(rest) {
            *place = *byte;
        }
        self.take(u64::from_le_bytes(last), rest.len() as u64);
        self
    }

    /// Adds a name or an id behind its length (one byte: both have at most 128), so that no two lists of
    /// parts run together.
    pub(crate) fn part(self, bytes: &[u8]) -> Hasher {
        self.write(&[u8::try_from(bytes.len()).unwrap_or(u8::MAX)])
            .write(bytes)
    }

    /// Adds the lowest `count` bytes of a word whose other bytes are 0.
    fn take(&mut self, word: u64, count: u64) {
        let open = self.length.wrapping_rem(8).wrapping_mul(8);
        self.tail |= word << open;
        let filled = self.length.wrapping_rem(8).wrapping_add(count);
        self.length = self.length.wrapping_add(count);
        if filled >= 8 {
            self.word(self.tail);
            self.tail = if open == 0 {
                0
            } else {
                word >> 64u64.wrapping_sub(open)
            };
        }
    }

    fn word(&mut self, word: u64) {
        let [_, _, _, v3] = &mut self.v;
        *v3 ^= word;
        round(&mut self.v);
        round(&mut self.v);
        let [v0, ..] = &mut self.v;
        *v0 ^= word;
    }

    /// The digest.
    pub(crate) fn finish(mut self) -> u128 {
        let last = self.tail | (self.length << 56);
        self.word(last);
        let low = self.squeeze(2, 0xee);
        let high = self.squeeze(1, 0xdd);
        u128::from(low) | (u128::from(high) << 64)
    }

    fn squeeze(&mut self, lane: usize, tweak: u64) -> u64 {
        if let Some(word) = self.v.get_mut(lane) {
            *word ^= tweak;
        }
        for _ in 0..4 {
            round(&mut self.v);
        }
        self.v.iter().fold(0, |acc, word| acc ^ word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let got = Hasher::new(reference_key())
                .write(&input[..length])
                .finish();
            assert_eq!(got, expected, "length {length}");
        }
    }

    #[test]
    fn pieces_do_not_matter() {
        let input: Vec<u8> = (0..100).collect();
        let whole = Hasher::new(reference_key()).write(&input).finish();
        for cut in 0..=input.len() {
            let (head, tail) = input.split_at(cut);
            let pieces = Hasher::new(reference_key())
                .write(head)
                .write(tail)
                .finish();
            assert_eq!(pieces, whole, "cut at {cut}");
        }
    }

    #[test]
    fn parts_do_not_run_together() {
        let one = Hasher::new(7).part(b"ab").part(b"c").finish();
        let two = Hasher::new(7).part(b"a").part(b"bc").finish();
        assert_ne!(one, two);
    }
}
