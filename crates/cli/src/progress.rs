//! Progress bars: on stderr, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Creates a bar of this length, if it is known. A command that goes on with what an earlier run has begun starts at
/// `done`: the rate and the time to go are those of this run.
pub(crate) fn bar(length: Option<u64>, done: u64, template: &str) -> ProgressBar {
    let bar = match length {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::new_spinner(),
    };
    bar.set_draw_target(ProgressDrawTarget::hidden());
    bar.set_position(done);
    // The estimate takes note of the place, and then forgets how fast it was reached.
    bar.tick();
    bar.reset_eta();
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    // The templates are constants and good.
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// What an earlier run had done counted as done now: a load that went on seemed to read gigabytes a second.
    #[test]
    fn a_bar_that_goes_on_tells_the_rate_of_this_run() {
        let begun = Instant::now();
        let bar = bar(Some(2_000_000_000), 1_000_000_000, "{bar} {bytes_per_sec}");
        std::thread::sleep(Duration::from_millis(200));
        bar.set_position(1_000_001_000);
        bar.tick();
        assert_eq!((bar.position(), bar.length()), (1_000_001_000, Some(2_000_000_000)));
        let rate = bar.per_sec();
        assert!(rate > 0.0 && rate <= 1000.0 / 0.2, "{rate} after {:?}", begun.elapsed());
        assert!(bar.eta() > Duration::from_secs(1000), "{:?}", bar.eta());
    }
}
