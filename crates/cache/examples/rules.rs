//! What each rule of the cache brings: hits and bytes written to flash, with all rules and with each of them switched off.
//!
//! ```sh
//! cargo run --release -p situ-cache --example rules            # a table for each workload
//! cargo run --release -p situ-cache --example rules -- quick   # a tenth of the requests
//! ```
//!
//! Each request asks for a key. If the cache does not have it, the item is stored, as a client of a cache does. The flash is a simulated device in memory: it has no
//! speed that could be compared, and keeps up with everything. Hits and bytes do not depend on that.
//!
//! Keys are zipfian. In `scans`, a fifth of the requests are for keys that are asked for once. In `times to live`, half of the keys live for 20 to 120 seconds, at 20,000
//! requests a second.

#[path = "shared/zipf.rs"]
mod zipf;

use situ_cache::{Admission, Cache, Flash, Lookup, Meta, Options};
use situ_device::Device;
use situ_sim::{FaultPlan, Rng, SimDevice, SimExecutor};
use std::sync::Arc;

use zipf::Zipf;

const NOW: u64 = 1_700_000_000;
const KEYS: u64 = 500_000;
const VALUE_BYTES: usize = 1000;
const MEMORY_BYTES: usize = 48 << 20;
const FLASH_BYTES: u64 = 192 << 20;
const REQUESTS_A_SECOND: u64 = 20_000;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Scans,
    TimesToLive,
}

/// Hits of a thousand requests in memory and on flash.
struct Outcome {
    memory_hits: u64,
    flash_hits: u64,
    requests: u64,
    written_bytes: u64,
    reinserted: u64,
    promoted: u64,
}

fn run(options: &Options, kind: Kind, zipf: &Zipf, requests: u64) -> Outcome {
    let sim = SimExecutor::new(1);
    let device = SimDevice::new(&sim.env(), FLASH_BYTES, FaultPlan::none(), 1);
    sim.run(|| {
        let flash = Flash { device: Arc::new(device) as Arc<dyn Device>, env: sim.env(), files: None };
        let (cache, _) = Cache::with_flash(options, flash, |_| NOW).expect("a simulated device");
        let (mut rng, mut scanned) = (Rng::new(7), KEYS);
        let (mut memory_hits, mut flash_hits, mut counted) = (0, 0, 0);
        let value = vec![7; VALUE_BYTES];
        for number in 0..requests {
            let now = NOW + number / REQUESTS_A_SECOND;
            if number % (REQUESTS_A_SECOND / 4) == 0 {
                cache.tidy(now);
            }
            let key = if kind == Kind::Scans && number % 5000 < 1000 {
                scanned += 1;
                scanned
            } else {
                zipf.rank(rng.below(1 << 53) as f64 / (1u64 << 53) as f64)
            };
            let name = format!("{key:016}");
            // The first half fills the cache.
            let counts = number >= requests / 2;
            counted += u64::from(counts);
            let is_hit = match cache.get(name.as_bytes(), now, |_| ()) {
                Lookup::Hit(()) => {
                    memory_hits += u64::from(counts);
                    true
                }
                Lookup::Miss => false,
                Lookup::OnFlash => {
                    let is_hit = cache.fetch(name.as_bytes(), now).is_some();
                    flash_hits += u64::from(counts && is_hit);
                    is_hit
                }
            };
            if !is_hit {
                let lives = kind == Kind::TimesToLive && key % 2 == 0;
                let expires = if lives { now + 20 + key % 100 } else { 0 };
                let meta = Meta { id: number, expires, ..Meta::default() };
                cache.put(name.as_bytes(), &meta, [&value, b""], now).expect("a short item");
            }
        }
        let flash = cache.properties().flash.expect("there is flash");
        assert!(flash.works && flash.behind == 0, "{flash:?}");
        Outcome {
            memory_hits,
            flash_hits,
            requests: counted,
            written_bytes: flash.written_bytes,
            reinserted: flash.reinserted,
            promoted: flash.promoted,
        }
    })
}

fn main() {
    let is_quick = std::env::args().nth(1).is_some_and(|argument| argument == "quick");
    let requests = if is_quick { 400_000 } else { 4_000_000 };
    let mut all = Options::of_memory(MEMORY_BYTES);
    all.lanes = 1;
    all.segment_bytes = 128 << 10;
    let with = |change: fn(&mut Options)| {
        let mut options = all.clone();
        change(&mut options);
        options
    };
    let cases = [
        ("all rules", all.clone()),
        ("no reinsertion", with(|options| options.flash.reinserts = false)),
        ("no promotion", with(|options| options.flash.promote_at = 0)),
        ("promotion at the first read", with(|options| options.flash.promote_at = 1)),
        ("admission of what was read", with(|options| options.flash.admission = Admission::Read)),
        ("no classes of times to live", with(|options| options.ttl_classes = false)),
        ("no probation: one queue", with(|options| (options.small_percent, options.move_at) = (100, u8::MAX))),
    ];
    println!("| workload | rules | hits | in memory | on flash | written, MB | reinserted | promoted |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for (name, kind, skew) in
        [("zipf 0.9", Kind::Plain, 0.9), ("scans", Kind::Scans, 0.9), ("times to live", Kind::TimesToLive, 0.9)]
    {
        let zipf = Zipf::new(KEYS, skew);
        for (rules, options) in &cases {
            let outcome = run(options, kind, &zipf, requests);
            let part = |hits: u64| hits as f64 / outcome.requests as f64;
            println!(
                "| {name} | {rules} | {:.4} | {:.4} | {:.4} | {} | {} | {} |",
                part(outcome.memory_hits + outcome.flash_hits),
                part(outcome.memory_hits),
                part(outcome.flash_hits),
                outcome.written_bytes >> 20,
                outcome.reinserted,
                outcome.promoted,
            );
        }
    }
}
