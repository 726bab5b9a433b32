//! The experiment of the paper on transparent compression: what space costs in writes, without trimming, with discarding, and with
//! zeroing in place, in logical and in physical bytes.
//!
//! `trimming DIRECTORY [--quick | --short | --full-size] [--drive /sys/block/zramN] [--draw FILE.svg]` uses an empty directory, and
//! prints the tables as Markdown. What a drive would take and write is counted with LZ4 (`account.rs`). With `--drive`, the directory
//! lies on that zram device, and the tables have a column with what the device itself says.
//!
//! `--quick`: a small log, a few lines of each table. `--short`: one table of few lines, with 128 MiB of values in segments of 4 MiB.
//! `--full-size`: the same lines with 768 MiB of values in segments of 64 MiB.

mod account;
mod load;
mod model;
mod plot;

use account::Accounted;
use load::{Outcome, Updates, Work, run};
use model::Point;
use plot::Series;
use situ_storage::{DirectoryVolume, Result, Volume};
use situ_values::{Layout, Options, Trim, Victims};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

struct Setup {
    directory: PathBuf,
    drive: Option<PathBuf>,
    segment_bytes: u64,
    live_bytes: u64,
    quick: bool,
    /// One table of few lines.
    short: bool,
    /// Updates for each key, before measuring and while measuring.
    rounds: (u64, u64),
    draw: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Some(setup) = Setup::of(std::env::args().skip(1)) else {
        eprintln!(
            "usage: trimming DIRECTORY [--quick | --short | --full-size] [--drive /sys/block/zramN] [--draw FILE.svg]"
        );
        return ExitCode::from(2);
    };
    match setup.tables() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// One line of a table: what it is, and the options that make it so.
struct Line {
    series: Series,
    name: String,
    options: Options,
}

impl Setup {
    fn of(mut arguments: impl Iterator<Item = String>) -> Option<Setup> {
        let directory = PathBuf::from(arguments.next().filter(|first| !first.starts_with('-'))?);
        let mut setup = Setup {
            directory,
            drive: None,
            segment_bytes: 512 << 10,
            live_bytes: 32 << 20,
            quick: false,
            short: false,
            rounds: (4, 3),
            draw: None,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => (setup.segment_bytes, setup.live_bytes, setup.quick) = (256 << 10, 16 << 20, true),
                "--short" => setup.make_short(4 << 20, 128 << 20),
                "--full-size" => setup.make_short(64 << 20, 768 << 20),
                "--draw" => setup.draw = Some(arguments.next()?.into()),
                "--drive" => setup.drive = Some(arguments.next()?.into()),
                _ => return None,
            }
        }
        Some(setup)
    }

    fn make_short(&mut self, segment_bytes: u64, live_bytes: u64) {
        (self.segment_bytes, self.live_bytes, self.short, self.rounds) = (segment_bytes, live_bytes, true, (3, 1));
    }

    fn work(&self, record_bytes: usize, compressible: bool, updates: Updates) -> Work {
        let keys = self.live_bytes / record_bytes as u64;
        let (warm_up, measured) = self.rounds;
        Work { keys, record_bytes, compressible, updates, warm_up, measured }
    }

    fn options(&self) -> Options {
        Options { segment_bytes: self.segment_bytes, logical_above_percent: 300, ..Options::default() }
    }

    fn off(&self, percent: u32, victims: Victims) -> Line {
        let options = Options { collect_above_percent: percent, victims, ..self.options() };
        Line {
            series: Series::Off,
            name: format!("off, collect above {}, {}", factor(percent), rule(victims)),
            options,
        }
    }

    fn discard(&self, percent: u32, victims: Victims) -> Line {
        let options = Options { trim: Trim::DiscardOnly, collect_above_percent: percent, victims, ..self.options() };
        Line {
            series: Series::Discard,
            name: format!("discard, collect above {}, {}", factor(percent), rule(victims)),
            options,
        }
    }

    fn full(&self, above: u32, at: u32, victims: Victims) -> Line {
        let options = Options {
            trim: Trim::Full,
            zero_above_percent: above,
            zero_at_percent: at,
            // Trimming comes first; collection for space only where trimming does not suffice.
            collect_above_percent: above.max(102) * 11 / 10,
            victims,
            ..self.options()
        };
        let name = format!("full, zero above {}, sectors from {}, {}", factor(above), factor(at), rule(victims));
        Line { series: Series::Full, name, options }
    }

    fn own_sectors(&self, logical: u32) -> Line {
        let options = Options {
            trim: Trim::DiscardOnly,
            layout: Layout::OwnSectors,
            logical_above_percent: logical,
            victims: Victims::Fifo,
            ..self.options()
        };
        Line {
            series: Series::OwnSectors,
            name: format!("own sectors, discard, addresses below {}", factor(logical)),
            options,
        }
    }

    fn tables(&self) -> Result<()> {
        use Victims::{Fifo, Garbage, GarbageAndAge};
        print_model();
        let uniform = self.work(2048, false, Updates::Uniform);
        if self.short {
            let mut lines = vec![self.off(125, Fifo), self.discard(200, Fifo)];
            lines.extend([125, 105].map(|above| self.full(above, 150, Fifo)));
            lines.push(self.own_sectors(300));
            return self.table("2 KB records, incompressible, uniform updates", &uniform, lines).map(drop);
        }
        let mut main =
            vec![self.off(110, Fifo), self.off(125, Fifo), self.off(125, Garbage), self.off(125, GarbageAndAge)];
        main.extend([self.off(150, Fifo), self.off(200, Fifo)]);
        main.extend([self.discard(125, Fifo), self.discard(125, Garbage), self.discard(200, Fifo)]);
        main.extend([125, 115, 105, 100].map(|above| self.full(above, 150, Fifo)));
        main.extend([self.own_sectors(300), self.own_sectors(1000)]);
        let points = self.table("2 KB records, incompressible, uniform updates", &uniform, main)?;
        if let Some(file) = &self.draw {
            let drawn = std::fs::write(file, plot::draw(&points));
            drawn.map_err(|e| situ_storage::Error::io("write", file.display(), e))?;
        }

        let sweep = [101, 133, 200, 300].iter().flat_map(|at| [self.full(105, *at, Fifo), self.full(125, *at, Fifo)]);
        self.table("Thresholds of sectors", &uniform, sweep.collect())?;
        let rules =
            [Fifo, Garbage, GarbageAndAge].iter().flat_map(|v| [self.full(105, 150, *v), self.full(125, 150, *v)]);
        self.table("Victim rules with full trimming", &uniform, rules.collect())?;

        for updates in [Updates::Zipf, Updates::Hot] {
            let work = self.work(2048, false, updates);
            let mut lines: Vec<Line> = [Fifo, Garbage, GarbageAndAge].map(|victims| self.off(125, victims)).into();
            lines.extend([
                self.discard(200, Fifo),
                self.full(125, 150, Fifo),
                self.full(105, 150, Fifo),
                self.own_sectors(300),
            ]);
            self.table(&format!("2 KB records, incompressible, {updates} updates"), &work, lines)?;
        }
        let short = || {
            vec![
                self.off(125, Fifo),
                self.discard(200, Fifo),
                self.full(125, 150, Fifo),
                self.full(105, 150, Fifo),
                self.own_sectors(300),
            ]
        };
        self.table(
            "2 KB records, half compressible, uniform updates",
            &self.work(2048, true, Updates::Uniform),
            short(),
        )?;
        self.table("Records of 2088 bytes, which cross sectors", &self.work(2088, false, Updates::Uniform), short())?;
        self.table("Records of 5000 bytes", &self.work(5000, false, Updates::Uniform), short())?;
        self.table("Records of 600 bytes", &self.work(600, false, Updates::Uniform), short()).map(drop)
    }

    fn table(&self, title: &str, work: &Work, lines: Vec<Line>) -> Result<Vec<(Series, Point)>> {
        println!("\n## {title}\n");
        println!("{} live records, segments of {} KiB.\n", work.keys, self.segment_bytes >> 10);
        println!(
            "| setting | WA logical | WA physical | WA physical + trim reads | space mean | space peak | space logical | drive says |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        let lines = if self.quick { lines.into_iter().take(4).collect() } else { lines };
        let mut points = Vec::new();
        for line in lines {
            let outcome = self.measure(work, line.options)?;
            println!("| {} | {} |", line.name, cells(&outcome));
            eprintln!("{title}: {}: {:?}", line.name, outcome.counters);
            points.push((line.series, Point { write: outcome.write, space: outcome.space_mean }));
        }
        Ok(points)
    }

    fn measure(&self, work: &Work, options: Options) -> Result<Outcome> {
        let directory = self.directory.join("run");
        let volume = DirectoryVolume::create(&directory)?;
        let volume: Arc<dyn Volume> = Arc::new(volume);
        let drive = || self.drive.as_deref().and_then(|device| compressed_bytes(device, &directory));
        let outcome = run(Arc::new(Accounted::new(volume)), options, work, &drive);
        std::fs::remove_dir_all(&directory).map_err(|e| situ_storage::Error::io("remove", directory.display(), e))?;
        outcome
    }
}

/// What a zram device has stored, compressed, when all that was written and all that was given up has reached it.
fn compressed_bytes(device: &Path, directory: &Path) -> Option<u64> {
    for command in ["sync -f", "fstrim"] {
        let mut words = command.split(' ');
        std::process::Command::new(words.next()?).args(words).arg(directory).status().ok()?;
    }
    let text = std::fs::read_to_string(device.join("mm_stat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

fn factor(percent: u32) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

fn rule(victims: Victims) -> &'static str {
    match victims {
        Victims::Garbage => "most garbage",
        Victims::Fifo => "first in first out",
        Victims::GarbageAndAge => "garbage and age",
    }
}

fn cells(outcome: &Outcome) -> String {
    let drive = outcome.drive_space_mean.map_or("".into(), |mean| format!("{mean:.3}"));
    let factors = [
        outcome.logical_write,
        outcome.write,
        outcome.write_and_trim_reads,
        outcome.space_mean,
        outcome.space_peak,
        outcome.logical_space,
    ];
    format!("{} | {drive}", factors.map(|factor| format!("{factor:.3}")).join(" | "))
}

fn print_model() {
    println!("## Model: 2 KB values, two to a sector, uniform, first in first out\n");
    println!("| setting | WA | space |");
    println!("|---|---|---|");
    for space in [1.1, 1.25, 1.5, 2.0] {
        println!("| off | {:.2} | {space} |", model::plain_at(space).write);
    }
    // Cleaned for want of addresses, at three times the live bytes.
    let u = 1.0 - 1.0 / model::plain_at(3.0).write;
    let at = model::discard(u);
    println!("| discard, addresses below 3.00 | {:.2} | {:.2} |", at.write, at.space);
    for q in [0.293, 0.45, 0.684, 1.0] {
        let at = model::full(u, q);
        println!("| full, addresses below 3.00 | {:.2} | {:.2} |", at.write, at.space);
    }
}
