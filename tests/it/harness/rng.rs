//! Numbers that look random and are the same in each run.

/// Generator of such numbers (splitmix64), from any seed.
#[derive(Debug)]
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 1).unwrap() % limit.max(1)
    }

    /// Milliseconds below a limit.
    pub(crate) fn milliseconds(&mut self, limit: usize) -> std::time::Duration {
        std::time::Duration::from_millis(self.below(limit) as u64)
    }

    /// A list in another order.
    pub(crate) fn shuffle<T>(&mut self, mut list: Vec<T>) -> Vec<T> {
        for at in (1..list.len()).rev() {
            let other = self.below(at + 1);
            list.swap(at, other);
        }
        list
    }
}
