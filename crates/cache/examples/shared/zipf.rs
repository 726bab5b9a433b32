//! Popularity of keys, for the examples.

/// Ranks with probabilities proportional to `1 / rank^skew`, by the sums of all of them.
pub(crate) struct Zipf(Vec<f64>);

impl Zipf {
    pub(crate) fn new(count: u64, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-skew);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|part| *part /= sum);
        Zipf(sums)
    }

    /// The rank at a place in the unit interval, from 0 on.
    pub(crate) fn rank(&self, at: f64) -> u64 {
        self.0.partition_point(|sum| *sum < at) as u64
    }
}
