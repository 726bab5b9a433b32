//! From measurements of linear and pipelined runs to the rules of a machine, as section 3.3 of the CoPro paper does.
//!
//! 1. For each length of values, the *growth ratio* is measured: by how much a pipeline raises the compaction's
//!    bandwidth, over by how much it raises the use of processors. A ratio of 1 turns all further processor time into
//!    bandwidth.
//! 2. A value is large from the smallest length on from which the ratio stays below what is asked for: 1 on the paper's
//!    host, 0.5 on its device, whose processors are slower.
//! 3. With that length, the ratio is measured for several shares of large values, over several workloads. The mean over
//!    workloads is lowest at some share. The threshold is the share before that one: there begins the stretch in which
//!    a pipeline pays least.
//!
//! [`rules_of`] makes rules of that, for a side that others use, too:
//! * The *border* is the share of processors in use at which pipelines go off. It lies half-way between what a
//!   pipelined run uses while the machine does nothing else, and all. So a store alone on a machine keeps its
//!   pipelines, and one without free processors does not.
//! * Pipelines come back when a pipelined run would fit below the border: the hysteresis is what a pipeline adds to the
//!   share in use.
//! * While the machine does nothing else, the threshold's share of large values turns pipelines off.
//! * Memory was not measured, and weighs nothing.

use crate::mode::DecisionRules;
use std::collections::BTreeMap;

/// The speed and the cost of compaction in one mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Bytes compacted in a second.
    pub bytes_per_s: f64,
    /// The share of the side's processors that was in use, 0 to 1.
    pub processors: f64,
}

/// A measurement with values of one length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValuePoint {
    /// The length of all values.
    pub value_bytes: u64,
    /// Linear runs.
    pub linear: Cost,
    /// Pipelined runs.
    pub pipelined: Cost,
}

/// A measurement with a share of large values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharePoint {
    /// Percent of entries with large values.
    pub large_percent: u8,
    /// Linear runs.
    pub linear: Cost,
    /// Pipelined runs.
    pub pipelined: Cost,
}

/// Everything that was measured of one side.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// A growth ratio below this does not pay: 1 turns all further processor time into bandwidth.
    pub ratio_min: f64,
    /// Values of one length each, in any order.
    pub values: Vec<ValuePoint>,
    /// Shares of large values, of all workloads, in any order.
    pub shares: Vec<SharePoint>,
}

/// The rules that follow for a side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibrated {
    /// A value is large from this length on; `None` if pipelines pay for all lengths that were measured.
    pub large_value_bytes: Option<u64>,
    /// The share of large values at which pipelines go off; `None` if no share was measured.
    pub threshold: Option<f64>,
}

/// Returns the growth of bandwidth in relation to the growth of processor use. The ratio is infinite if bandwidth grows
/// and processor use does not. The ratio is 0 if bandwidth does not grow, or a measurement is not above 0.
pub fn growth_ratio(linear: Cost, pipelined: Cost) -> f64 {
    if linear.bytes_per_s <= 0.0 || linear.processors <= 0.0 {
        return 0.0;
    }
    let bandwidth = pipelined.bytes_per_s / linear.bytes_per_s - 1.0;
    let processors = pipelined.processors / linear.processors - 1.0;
    if bandwidth.is_nan() || bandwidth <= 0.0 {
        0.0
    } else if processors <= 0.0 {
        f64::INFINITY
    } else {
        bandwidth / processors
    }
}

/// Returns the rules that follow from what was measured.
pub fn calibrate(side: &Side) -> Calibrated {
    let mut values: Vec<(u64, f64)> =
        side.values.iter().map(|point| (point.value_bytes, growth_ratio(point.linear, point.pipelined))).collect();
    values.sort_by_key(|(bytes, _)| *bytes);
    let mut shares: BTreeMap<u8, Vec<f64>> = BTreeMap::new();
    for point in &side.shares {
        shares.entry(point.large_percent.min(100)).or_default().push(growth_ratio(point.linear, point.pipelined));
    }
    let mean = |ratios: Vec<f64>| ratios.iter().sum::<f64>() / ratios.len() as f64;
    let means: Vec<(u8, f64)> = shares.into_iter().map(|(percent, ratios)| (percent, mean(ratios))).collect();
    Calibrated { large_value_bytes: large_from(&values, side.ratio_min), threshold: before_the_lowest(&means) }
}

/// The distance between off and on is at least this.
const HYSTERESIS_MIN: f64 = 0.02;

/// Returns the rules that follow from what was measured of a side. What was not measured is as in `base`.
///
/// `None` if no length of values was measured.
pub fn rules_of(side: &Side, base: DecisionRules) -> Option<DecisionRules> {
    let Calibrated { large_value_bytes, threshold } = calibrate(side);
    // The smallest values have the longest merges, so a pipeline adds most there.
    let smallest = side.values.iter().min_by_key(|point| point.value_bytes)?;
    let share = |cost: Cost| if cost.processors.is_finite() { cost.processors.clamp(0.0, 1.0) } else { 0.0 };
    let (linear, pipelined) = (share(smallest.linear), share(smallest.pipelined));
    let border = f64::midpoint(pipelined, 1.0);
    let left_for_large_values = 1.0 - pipelined / border;
    let large_value_weight = match (large_value_bytes, threshold) {
        (Some(_), Some(threshold)) if threshold > 0.0 => left_for_large_values / threshold,
        (Some(_), _) => left_for_large_values,
        (None, _) => 0.0,
    };
    Some(DecisionRules {
        cpu_weight: 1.0 / border,
        memory_weight: 0.0,
        large_value_weight,
        large_value_bytes: large_value_bytes.unwrap_or(base.large_value_bytes),
        threshold: 1.0,
        hysteresis: ((pipelined - linear) / border).max(HYSTERESIS_MIN),
        ..base
    })
}

/// The smallest length from which on each ratio is below `ratio_min`. Lengths ascend.
fn large_from(ratios: &[(u64, f64)], ratio_min: f64) -> Option<u64> {
    let below = ratios.iter().rev().take_while(|(_, ratio)| *ratio < ratio_min);
    below.last().map(|(bytes, _)| *bytes)
}

/// The share before the one with the lowest ratio; shares ascend.
fn before_the_lowest(ratios: &[(u8, f64)]) -> Option<f64> {
    let lowest = ratios.iter().enumerate().min_by(|(_, a), (_, b)| a.1.total_cmp(&b.1)).map(|(at, _)| at)?;
    Some(f64::from(ratios[lowest.saturating_sub(1)].0) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs whose growth ratio is this: bandwidth grows by so much when the use of processors doubles.
    fn runs(ratio: f64) -> (Cost, Cost) {
        let (linear, pipelined) = ((10.0, 0.2), (10.0 * (1.0 + ratio), 0.4));
        let cost = |(bytes_per_s, processors)| Cost { bytes_per_s, processors };
        (cost(linear), cost(pipelined))
    }

    fn value(kib: u64, ratio: f64) -> ValuePoint {
        let (linear, pipelined) = runs(ratio);
        ValuePoint { value_bytes: kib << 10, linear, pipelined }
    }

    fn share(large_percent: u8, ratio: f64) -> SharePoint {
        let (linear, pipelined) = runs(ratio);
        SharePoint { large_percent, linear, pipelined }
    }

    /// The paper's own numbers (figure 7) give the paper's lengths.
    #[test]
    fn figure_7_gives_32_kib_on_the_host_and_16_kib_on_the_device() {
        let host = vec![value(16, 1.10), value(32, 0.97), value(64, 0.88)];
        let device = vec![value(64, 0.28), value(4, 0.53), value(16, 0.45), value(32, 0.40)];
        let large = |ratio_min, values| calibrate(&Side { ratio_min, values, shares: Vec::new() }).large_value_bytes;
        assert_eq!(large(1.0, host.clone()), Some(32 << 10));
        assert_eq!(large(0.5, device.clone()), Some(16 << 10));
        assert_eq!(large(0.2, device.clone()), None, "pipelines pay for all of them");
        assert_eq!(large(1.0, device), Some(4 << 10));
        assert_eq!(large(1.0, Vec::new()), None);
    }

    /// Figure 8 in words: workloads sink up to 70%, their mean is lowest at 80%, and 70% to 90% is the lowest stretch.
    #[test]
    fn figure_8_gives_70_percent() {
        let sinking = [(50, 1.3), (60, 1.2), (70, 1.0), (80, 0.8), (90, 0.85), (100, 0.7)];
        let mixed = [(50, 1.2), (60, 1.1), (70, 1.0), (80, 0.8), (90, 0.9), (100, 1.2)];
        let shares = sinking.iter().chain(&mixed).map(|(percent, ratio)| share(*percent, *ratio)).collect();
        let calibrated = calibrate(&Side { ratio_min: 1.0, values: Vec::new(), shares });
        assert_eq!(calibrated, Calibrated { large_value_bytes: None, threshold: Some(0.7) });
    }

    #[test]
    fn the_first_share_has_none_before_it() {
        let shares = vec![share(20, 0.1), share(40, 0.5)];
        assert_eq!(calibrate(&Side { ratio_min: 1.0, values: Vec::new(), shares }).threshold, Some(0.2));
    }

    /// A dip among small values makes them no large values.
    #[test]
    fn the_ratio_has_to_stay_below() {
        let values = vec![value(1, 0.9), value(4, 1.2), value(16, 0.8), value(64, 0.7)];
        let side = Side { ratio_min: 1.0, values, shares: Vec::new() };
        assert_eq!(calibrate(&side).large_value_bytes, Some(16 << 10));
    }

    /// One of four processors in use by a linear run, two by a pipelined one.
    #[test]
    fn rules_keep_pipelines_on_a_machine_that_does_nothing_else() {
        let cost = |bytes_per_s, processors| Cost { bytes_per_s, processors };
        let point = |value_bytes, bytes_per_s| ValuePoint {
            value_bytes,
            linear: cost(100.0, 0.25),
            pipelined: cost(bytes_per_s, 0.5),
        };
        let shares = vec![share(30, 0.9), share(70, 0.8), share(90, 0.2)];
        let side = Side { ratio_min: 1.0, values: vec![point(64 << 10, 110.0), point(100, 250.0)], shares };
        let rules = rules_of(&side, DecisionRules::copro_plus(7)).unwrap();
        let f = |processors: f64, large: f64| rules.cpu_weight * processors + rules.large_value_weight * large;
        assert!(f(0.5, 0.0) < rules.threshold, "alone, a pipeline stays");
        assert!((f(0.75, 0.0) - rules.threshold).abs() < 1e-9, "the border");
        assert!((f(0.5, 0.7) - rules.threshold).abs() < 1e-9, "alone, 70% of large values turn it off");
        assert!(f(0.25, 0.0) < rules.threshold - rules.hysteresis, "alone, it comes back");
        assert!(
            (f(0.5, 0.0) - (rules.threshold - rules.hysteresis)).abs() < 1e-9,
            "there is room for what a pipeline adds"
        );
        assert_eq!((rules.large_value_bytes, rules.memory_weight), (64 << 10, 0.0));
        let none = Side { values: Vec::new(), ..side.clone() };
        assert_eq!(rules_of(&none, DecisionRules::copro_plus(7)), None);
        let pays = Side { values: vec![point(100, 250.0)], ..side };
        let rules = rules_of(&pays, DecisionRules::copro_plus(7)).unwrap();
        assert_eq!((rules.large_value_weight, rules.large_value_bytes), (0.0, 7), "pipelines pay for all lengths");
    }

    /// All processors in use by either mode, and measurements that cannot be: rules are finite all the same.
    #[test]
    fn rules_are_finite() {
        for (linear, pipelined) in [(1.0, 1.0), (0.0, 0.0), (f64::NAN, f64::INFINITY), (2.0, 3.0), (0.9, 0.4)] {
            let cost = |processors| Cost { bytes_per_s: 1.0, processors };
            let point = ValuePoint { value_bytes: 1, linear: cost(linear), pipelined: cost(pipelined) };
            let shares = vec![SharePoint { large_percent: 0, linear: cost(linear), pipelined: cost(pipelined) }];
            let side = Side { ratio_min: 1.0, values: vec![point], shares };
            let rules = rules_of(&side, DecisionRules::copro_plus(7)).unwrap();
            let numbers = [rules.cpu_weight, rules.large_value_weight, rules.hysteresis, rules.threshold];
            assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0), "{rules:?}");
            assert!(rules.hysteresis < rules.threshold, "{rules:?}");
        }
    }

    /// Table 5's and section 4.3's growth: 134% of bandwidth for 74% of processors on the host.
    #[test]
    fn ratios_are_of_growth_and_measurements_that_cannot_be_are_no_gain() {
        let cost = |bytes_per_s, processors| Cost { bytes_per_s, processors };
        let host = growth_ratio(cost(2.09, 10.1), cost(4.90, 17.6));
        assert!((1.80..1.82).contains(&host), "{host}");
        assert_eq!(growth_ratio(cost(1.0, 0.5), cost(2.0, 0.5)), f64::INFINITY);
        assert_eq!(growth_ratio(cost(1.0, 0.5), cost(0.9, 0.4)), 0.0);
        assert_eq!(growth_ratio(cost(0.0, 0.5), cost(1.0, 0.5)), 0.0);
        assert_eq!(growth_ratio(cost(1.0, 0.0), cost(2.0, 0.5)), 0.0);
        assert_eq!(growth_ratio(cost(1.0, 0.5), cost(f64::NAN, 0.5)), 0.0);
    }
}
