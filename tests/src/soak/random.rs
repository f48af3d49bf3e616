//! Numbers that follow from a seed alone, on every machine and in every release.

/// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one `purpose` (and one `n` within it): no draw of one moves another's.
    pub(crate) fn new(seed: u64, purpose: u64, n: u64) -> Self {
        let mut random = Self(seed);
        random.0 = random.next() ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        random.0 = random.next() ^ n;
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to `below`, which is at least 1. The bias of the remainder is far below what a test could see.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.next() % below.max(1)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a thousand cases.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// One of a list, each as often as its weight says.
    pub(crate) fn pick<T: Copy>(&mut self, weighted: &[(u64, T)]) -> T {
        let sum = weighted.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(sum);
        for (weight, what) in weighted {
            if left < *weight {
                return *what;
            }
            left -= weight;
        }
        weighted.last().expect("a list to pick from is not empty").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_purposes_do_not_mix() {
        let draw = |seed, purpose| {
            let mut random = Random::new(seed, purpose, 7);
            (0..100).map(|_| random.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        // The first outputs of SplitMix64 from state 1234567, as its authors' code gives them.
        let mut known = Random(1_234_567);
        assert_eq!(known.next(), 6_457_827_717_110_365_317);
        assert_eq!(known.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn weights_are_kept() {
        let mut random = Random::new(1, 1, 1);
        let picked = (0..10_000).filter(|_| random.pick(&[(9, false), (1, true)]));
        let rare = picked.count();
        assert!((800..1_200).contains(&rare), "{rare}");
    }
}
