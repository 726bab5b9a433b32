//! The HOT share that a fill factor leads to, from what the server has counted at the present one.
//!
//! # Model
//! An update stays in its page if a free slot is there. The old version's slot becomes free once no snapshot can see
//! that version; until then the page needs one more slot. So a page needs, at its busiest moment, room for S versions
//! in addition to its rows. A page that lacks the room sends rows away until it has the room: each row that leaves
//! makes a slot free for good. So a page with r spare slots has max(0, S − r) updates that are not HOT, however often
//! it is updated.
//!
//! S differs from page to page; the model takes a Poisson distribution with mean σ, and takes σ from the counts:
//! ```text
//! touched  = pages that the counted updates went to
//! E[max(0, S − r₀)] = updates that wanted room / touched        with r₀ = spare slots at the present fill factor: solved for σ
//! σ(f)     = σ × rows(f) / rows(f₀)                             fewer rows in a page, fewer versions at a time
//! wanting(f) = E[max(0, S(f) − r(f))] / (updates / touched × rows(f) / rows(f₀))
//! ```
//! `touched` is a guess between two cases. If at least half as many rows were inserted as updated, rows are updated in
//! their youth: the updates went to as many pages as the rows that came, or that were updated, fill. Otherwise rows are
//! updated at random: all pages.
//!
//! **Checked** against PostgreSQL 15 with three workloads at the fill factors 100, 90, 75 and 50
//! (docs/evidence/postgres.md).
//! **Limits.** Before version 16 the server does not count why an update left its page. Then the model takes all of
//! them for want of room, and the gain is an upper bound. Long-lived snapshots that come later than the counts need
//! more room.
//! **Rejected.** To compute S from the rate of updates and the age of snapshots: the age changes from hour to hour, and
//! hot rows are not spread evenly. The counts hold the past need of the pages.

use crate::table::Counts;

/// The load on a table's pages, as the counts show it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    /// Versions that a page needs room for, in addition to its rows: σ, at [`rows`](Pressure::rows) rows.
    pub versions: f64,
    /// Updates that a page has had, of those that had any.
    pub updates: f64,
    /// Rows of a page when that was counted.
    pub rows: f64,
    /// Rows are updated in their youth: about as many come as are updated.
    pub young: bool,
}

impl Pressure {
    /// Solves for σ in a table of `pages` pages, which had `spare` slots in addition to `rows` rows.
    pub fn solve(counts: &Counts, pages: f64, spare: u32, rows: f64) -> Pressure {
        let young = counts.inserted >= counts.updated / 2;
        let touched =
            if young { (counts.inserted.max(counts.updated) as f64 / rows).min(pages) } else { pages }.max(1.0);
        let missing = counts.want_room() as f64 / touched;
        // A page that was updated less than once has not shown what it needs.
        let versions = mean_that_exceeds(spare, missing).max(1.0);
        Pressure { versions, updates: counts.updated as f64 / touched, rows, young }
    }

    /// Returns the share of updates that find no room in pages with `rows` rows and `spare` slots.
    pub fn wanting(&self, rows: f64, spare: u32) -> f64 {
        let scale = rows / self.rows;
        (excess(self.versions * scale, spare) / (self.updates * scale)).min(1.0)
    }
}

/// Returns the mean of a Poisson distribution whose expected excess over `spare` is `missing`.
fn mean_that_exceeds(spare: u32, missing: f64) -> f64 {
    if missing <= 0.0 {
        return 0.0;
    }
    // The excess grows with the mean, and is at least the mean less the spare slots.
    let (mut low, mut high) = (0.0, missing + f64::from(spare) + 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if excess(middle, spare) < missing { low = middle } else { high = middle }
    }
    high
}

/// E[max(0, S − spare)] for S of a Poisson distribution: mean − spare + Σ (spare − k) P(k) over k below spare.
fn excess(mean: f64, spare: u32) -> f64 {
    let mut probability = (-mean).exp();
    let mut below = 0.0;
    for k in 0..spare {
        below += f64::from(spare - k) * probability;
        probability *= mean / f64::from(k + 1);
    }
    (mean - f64::from(spare) + below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excess_is_that_of_the_distribution() {
        assert!((excess(2.5, 0) - 2.5).abs() < 1e-12);
        // By hand: P(0) = e⁻¹, so E[max(0, S − 1)] = 1 − 1 + e⁻¹.
        assert!((excess(1.0, 1) - (-1.0f64).exp()).abs() < 1e-12);
        assert!(excess(1.0, 12) < 1e-9);
        assert!(excess(40.0, 60) < 0.1 && excess(40.0, 30) > 10.0);
    }

    #[test]
    fn the_mean_is_found_again() {
        for (mean, spare) in [(0.3, 0), (1.0, 1), (4.5, 3), (30.0, 12), (3.0, 10)] {
            let found = mean_that_exceeds(spare, excess(mean, spare));
            assert!((found - mean).abs() < 1e-6, "{mean} {spare}: {found}");
        }
        assert_eq!(mean_that_exceeds(3, 0.0), 0.0);
    }

    fn counts(inserted: u64, updated: u64, hot_updated: u64) -> Counts {
        Counts { inserted, updated, hot_updated, ..Counts::default() }
    }

    #[test]
    fn a_forecast_for_the_present_page_is_what_was_counted() {
        let pressure = Pressure::solve(&counts(240_000, 240_000, 110_000), 50_000.0, 2, 33.0);
        assert!((pressure.wanting(33.0, 2) - 130.0 / 240.0).abs() < 1e-6);
        assert!(pressure.wanting(24.0, 10) < pressure.wanting(33.0, 2));
        assert!(pressure.wanting(16.0, 18) < 0.05);
    }

    #[test]
    fn pages_are_those_of_young_rows_or_all() {
        let updates = |inserted, updated, pages| Pressure::solve(&counts(inserted, updated, 0), pages, 0, 10.0).updates;
        // Each row that comes is updated once: as many pages as they fill.
        assert_eq!(updates(1000, 1000, 500.0), 10.0);
        assert_eq!(updates(2000, 3000, 500.0), 10.0);
        assert_eq!(updates(2000, 1000, 500.0), 5.0);
        // Updated at random.
        assert_eq!(updates(10, 1000, 500.0), 2.0);
        assert_eq!(updates(1000, 1000, 50.0), 20.0, "no more than there are");
    }
}
