//! `disk`: a device without a file system as a store's fast disk, and NVMe drives for user space.

mod controllers;

use crate::DONE;
use crate::drive::DriveReport;
use crate::failure::{Exit, Failure, Outcome};
use crate::geometry::DeviceReport;
use crate::options::{DiskAddOptions, DiskCheckOptions, DiskCommand, DiskDrainOptions, DiskFormatOptions};
use crate::output::Output;
use crate::store::Home;
use crate::text;
use serde::Serialize;
use situ::{Listener, Options, StoreBuilder, StoreEvent};
use situ_base::Env;
use situ_base::lock;
use situ_device::pci::{Controllers, Linux};
use situ_device::{Device, Drive, Geometry};
use situ_rawdisk::{AreaUse, FormatOptions, RawOptions, RawReport, RawVolume};
use situ_storage::{DirectoryVolume, Volume};
use situ_tiers::{TieredBuilder, TieredStore};
use std::path::Path;
use std::sync::{Arc, Mutex};

pub(crate) fn disk(command: &DiskCommand, out: &mut Output) -> Outcome {
    match command {
        DiskCommand::Format(options) => format(options, out),
        DiskCommand::Show(options) => match &options.device {
            Some(device) => show(device, options.files, out),
            None => controllers::show(&Controllers::default(), out),
        },
        DiskCommand::Check(options) => check(options, out),
        DiskCommand::Add(options) => add(options, out),
        DiskCommand::Drain(options) => drain(options, out),
        DiskCommand::Bind(options) => controllers::bind(options, &Controllers::default(), &Linux, out),
        DiskCommand::Unbind(options) => controllers::unbind(options, &Controllers::default(), &Linux, out),
    }
}

/// The answer of `add` and `drain`.
#[derive(Serialize)]
struct Changed {
    directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_disk: Option<String>,
    /// The files that a repair had set aside on the disk, and that lie at home now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set_aside: Vec<String>,
}

/// The files that a repair had set aside on the disk, as they come home.
#[derive(Default)]
struct SetAside(Mutex<Vec<String>>);

impl Listener for SetAside {
    fn event(&self, event: &StoreEvent) {
        if let StoreEvent::DamagedFileMoved { file, .. } = event {
            lock(&self.0).push(file.clone());
        }
    }
}

fn existing() -> Options {
    let mut options = Options::default();
    options.create_if_missing = false;
    options
}

fn add(options: &DiskAddOptions, out: &mut Output) -> Outcome {
    let directory = &options.directory;
    let failed = |error: situ::Error| Failure::store("cannot add the disk to the store", directory, &error);
    let home = Home::at(directory, &options.node);
    let store = home.open(StoreBuilder::new(existing()).fast_disk(&options.disk)).map_err(failed)?;
    let fast_disk = store.placement().map(|placement| placement.fast_location);
    store.close().map_err(failed)?;
    let (shown, disk) = (directory.display(), options.disk.display());
    let changed = Changed { directory: shown.to_string(), fast_disk, set_aside: Vec::new() };
    if out.is_json() {
        out.object(&changed)?;
    } else {
        out.line(format!(
            "The store in {shown} uses {disk} as its fast disk from now on. It does not open without it."
        ))?;
        out.line(format!("`situ disk drain {shown}` takes it away again."))?;
    }
    DONE
}

fn drain(options: &DiskDrainOptions, out: &mut Output) -> Outcome {
    let directory = &options.directory;
    let failed = |error: situ::Error| Failure::store("cannot drain the store's fast disk", directory, &error);
    let heard = Arc::new(SetAside::default());
    let (drained, closed) = match out.served() {
        // Its log tells of files that a repair had set aside.
        Some(store) => (store.drain_fast_disk(), Ok(())),
        None => {
            let mut store_options = existing();
            store_options.listener = Some(Arc::clone(&heard) as Arc<dyn Listener>);
            let store = Home::at(directory, &options.node).open(StoreBuilder::new(store_options)).map_err(failed)?;
            (store.drain_fast_disk(), store.close())
        }
    };
    let set_aside = std::mem::take(&mut *lock(&heard.0));
    if !out.is_json() {
        // Also when the drain has failed later: they are somewhere else now.
        for file in &set_aside {
            out.line(format!("A repair had set {file} aside on the disk. It lies in {} now.", directory.display()))?;
        }
    }
    drained.and(closed).map_err(failed)?;
    let changed = Changed { directory: directory.display().to_string(), fast_disk: None, set_aside };
    if out.is_json() {
        out.object(&changed)?;
    } else {
        out.line(format!(
            "The store in {} has no fast disk any more. Everything is home, in that directory.",
            directory.display()
        ))?;
    }
    DONE
}

fn open_device(what: &str, path: &Path, read_only: bool) -> Result<Arc<dyn Device>, Failure> {
    situ_device::open(path, situ_device::OpenOptions { read_only, ..situ_device::OpenOptions::default() })
        .map_err(|error| Failure::new(format!("{what} {}", path.display()), error))
}

fn failure(what: &str, path: &Path, error: &situ_storage::Error) -> Failure {
    let what = format!("{what} {}", path.display());
    if let situ_storage::Error::Locked { why, .. } = error {
        let why = why.as_deref().unwrap_or("it is in use: mounted, or a store has it open");
        return Failure::new(what, why).cure(format!(
            "unmount it, or close the store; `lsof {}` shows which process has it open",
            path.display()
        ));
    }
    let failure = Failure::new(what, error);
    match error {
        situ_storage::Error::Corruption(_) => {
            failure.cure(format!("`situ disk check {}` reads all of its metadata", path.display())).ending(Exit::Damage)
        }
        _ => failure,
    }
}

#[derive(Serialize)]
struct Area {
    bytes: u64,
    used_bytes: u64,
    files: u64,
    file_bytes: u64,
    fragmented_files: u64,
    free_runs: u64,
    longest_free_bytes: u64,
}

impl From<AreaUse> for Area {
    fn from(area: AreaUse) -> Area {
        let AreaUse { bytes, used_bytes, files, file_bytes, fragmented_files, free_runs, longest_free_bytes } = area;
        Area { bytes, used_bytes, files, file_bytes, fragmented_files, free_runs, longest_free_bytes }
    }
}

#[derive(Serialize)]
struct Shown {
    /// Path and backend.
    device: String,
    geometry: DeviceReport,
    drive: DriveReport,
    id: String,
    generation: u64,
    formatted_at: u64,
    device_bytes: u64,
    overhead_bytes: u64,
    top_overhead_bytes: u64,
    log: Area,
    top: Area,
    small_files: u64,
    journal_half_bytes: u64,
    journal_used_bytes: u64,
    journal_checkpoints: u64,
    journal_frames: u64,
    catalogue_bytes: u64,
    checkpoint_bytes: u64,
    damaged_superblocks: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<ShownFile>>,
}

#[derive(Serialize)]
struct ShownFile {
    name: String,
    bytes: u64,
}

impl Shown {
    fn new(report: RawReport, geometry: Geometry, drive: DriveReport, files: Option<Vec<ShownFile>>) -> Shown {
        let (overhead_bytes, top_overhead_bytes) = (report.overhead_bytes(), report.top_overhead_bytes());
        Shown {
            device: report.device,
            geometry: geometry.into(),
            drive,
            id: report.id.to_string(),
            generation: report.generation,
            formatted_at: report.formatted_at,
            device_bytes: report.device_bytes,
            overhead_bytes,
            top_overhead_bytes,
            log: report.log.into(),
            top: report.top.into(),
            small_files: report.inline_files,
            journal_half_bytes: report.journal_half_bytes,
            journal_used_bytes: report.journal_used_bytes,
            journal_checkpoints: report.journal_epoch,
            journal_frames: report.journal_sequence,
            catalogue_bytes: report.catalogue_bytes,
            checkpoint_bytes: report.checkpoint_bytes,
            damaged_superblocks: report.damaged_superblocks,
            files,
        }
    }

    fn tell(&self, out: &mut Output) -> Outcome {
        out.line(&self.device)?;
        let (formatted, times) = (text::utc(self.formatted_at), text::plural(self.generation, "time"));
        out.line(format!("identity   {}, formatted {formatted} ({times} in all)", self.id))?;
        let share = 100.0 * self.overhead_bytes as f64 / self.device_bytes.max(1) as f64;
        let (all, overhead) = (text::bytes(self.device_bytes), text::bytes(self.overhead_bytes));
        out.line(format!("size       {all}, of which the format takes {overhead} ({share:.2}%)"))?;
        lines(&self.geometry.lines(), out)?;
        tell_drive(&self.drive, out)?;
        for (name, area) in [("log area", &self.log), ("TopFS", &self.top)] {
            out.line(format!("{name:<10} {}", area.words()))?;
        }
        if self.top.file_bytes > 0 {
            let share = 100.0 * self.top_overhead_bytes as f64 / self.top.file_bytes as f64;
            let (overhead, files) = (text::bytes(self.top_overhead_bytes), text::bytes(self.top.file_bytes));
            out.line(format!(
                "overhead   {overhead} for {files} of tables ({share:.2}%): the format, and the unused ends of pages"
            ))?;
        }
        let catalogue = text::bytes(self.catalogue_bytes);
        out.line(format!(
            "metadata   {catalogue} and {}; journal: checkpoint {}, {} of {} used",
            text::plural(self.small_files, "small file"),
            text::count(self.journal_checkpoints),
            text::bytes(self.journal_used_bytes),
            text::bytes(self.journal_half_bytes),
        ))?;
        for copy in &self.damaged_superblocks {
            out.warn(&format!("copy {copy} of the superblock is damaged; the next change to the disk writes it again"));
        }
        for file in self.files.iter().flatten() {
            out.line(format!("  {:<20} {:>12}", file.name, text::bytes(file.bytes)))?;
        }
        DONE
    }
}

impl Area {
    fn words(&self) -> String {
        let fragmented = match self.fragmented_files {
            0 => String::new(),
            files => format!(" ({} in several pieces)", text::count(files)),
        };
        format!(
            "{} of {} used by {}{fragmented}; {} free in {}, the longest {}",
            text::bytes(self.used_bytes),
            text::bytes(self.bytes),
            text::plural(self.files, "file"),
            text::bytes(self.bytes - self.used_bytes),
            text::plural(self.free_runs, "run"),
            text::bytes(self.longest_free_bytes),
        )
    }
}

fn format(options: &DiskFormatOptions, out: &mut Output) -> Outcome {
    let path = &options.device;
    let what = "cannot make a Situ disk of";
    let device = open_device(what, path, false)?;
    let format = FormatOptions { log_bytes: options.log, force: options.force, ..FormatOptions::default() };
    RawVolume::format(device, Env::system(), &format).map_err(|error| failure(what, path, &error))?;
    // Opened a second time: a file that has all of its room now is another device than before.
    tell(what, path, open_device(what, path, true)?, false, out)
}

/// A directory, or a block device that is no Situ disk: what there is to say of the drive below.
#[derive(Serialize)]
struct ShownPlace {
    /// The directory, or path and backend.
    location: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<DeviceReport>,
    drive: DriveReport,
    /// The reason why it is shown as a device only.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_situ_disk: Option<String>,
}

impl ShownPlace {
    fn tell(&self, out: &mut Output) -> Outcome {
        if out.is_json() {
            out.object(self)?;
            return DONE;
        }
        out.line(&self.location)?;
        let geometry = self.geometry.as_ref().map(DeviceReport::lines);
        geometry.iter().try_for_each(|geometry| lines(geometry, out))?;
        tell_drive(&self.drive, out)?;
        self.no_situ_disk.iter().for_each(|why| out.warn(why));
        DONE
    }
}

fn lines(lines: &[(&'static str, String)], out: &mut Output) -> Result<(), Failure> {
    for (name, line) in lines {
        out.line(format!("{name:<10} {line}"))?;
    }
    Ok(())
}

fn tell_drive(drive: &DriveReport, out: &mut Output) -> Result<(), Failure> {
    lines(&drive.lines(), out)?;
    drive.trouble().into_iter().for_each(|trouble| out.warn(trouble));
    Ok(())
}

fn show(path: &Path, files: bool, out: &mut Output) -> Outcome {
    let what = "cannot show";
    if path.is_dir() {
        return show_directory(what, path, out);
    }
    let device = open_device(what, path, true)?;
    tell(what, path, device, files, out)
}

/// Shows the drive below a directory, such as a store's.
fn show_directory(what: &str, path: &Path, out: &mut Output) -> Outcome {
    let volume = DirectoryVolume::open(path).map_err(|error| failure(what, path, &error))?;
    let drive = drive_under(what, path)?;
    let location = volume.location();
    ShownPlace { location, geometry: None, drive: DriveReport::under(&drive, volume.space()), no_situ_disk: None }
        .tell(out)
}

fn drive_under(what: &str, path: &Path) -> Result<Drive, Failure> {
    Drive::under(path).map_err(|error| Failure::new(format!("{what} {}", path.display()), error))
}

fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    situ_device::is_pci_name(path)
        || std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

fn tell(what: &str, path: &Path, device: Arc<dyn Device>, files: bool, out: &mut Output) -> Outcome {
    let (geometry, space, location) = (device.geometry(), device.space(), device.describe());
    let drive = DriveReport::under(&drive_under(what, path)?, space);
    let volume = match RawVolume::open(device, Env::system(), RawOptions { cache_bytes: 0 }) {
        // A device without a Situ disk is shown, too: its user may be about to format it.
        Err(error @ situ_storage::Error::Invalid(_)) if is_block_device(path) => {
            let (geometry, no_situ_disk) = (Some(geometry.into()), Some(error.to_string()));
            return ShownPlace { location, geometry, drive, no_situ_disk }.tell(out);
        }
        other => other.map_err(|error| failure(what, path, &error))?,
    };
    let files = if files {
        let list = volume.list().map_err(|error| failure(what, path, &error))?;
        Some(list.into_iter().map(|meta| ShownFile { name: meta.name.to_string(), bytes: meta.bytes }).collect())
    } else {
        None
    };
    let shown = Shown::new(volume.report(), geometry, drive, files);
    if out.is_json() {
        out.object(&shown)?;
        return DONE;
    }
    shown.tell(out)
}

#[derive(Serialize)]
struct Checked {
    sound: bool,
    problems: Vec<String>,
    files: u64,
    frames: u64,
    used_pages: u64,
    zero_pages: u64,
}

fn check(options: &DiskCheckOptions, out: &mut Output) -> Outcome {
    let (what, path) = ("cannot check", &options.device);
    let device = open_device(what, path, true)?;
    let found = RawVolume::check(device, Env::system()).map_err(|error| failure(what, path, &error))?;
    let checked = Checked {
        sound: found.problems.is_empty(),
        problems: found.problems,
        files: found.files,
        frames: found.frames,
        used_pages: found.used_pages,
        zero_pages: found.zero_pages,
    };
    if out.is_json() {
        out.object(&checked)?;
    } else {
        for problem in &checked.problems {
            out.line(problem)?;
        }
        out.line(format!(
            "{}, {} of metadata, {} in use; {}",
            text::plural(checked.files, "file"),
            text::plural(checked.frames, "frame"),
            text::plural(checked.used_pages, "page"),
            if checked.sound { "all is sound" } else { "the disk is damaged" },
        ))?;
    }
    if checked.sound { DONE } else { Ok(Exit::Damage) }
}
