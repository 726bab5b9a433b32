//! The drive below a disk or a directory, in lines for people and as JSON: whether it compresses, and its logical and
//! physical bytes.

use crate::text;
use serde::Serialize;
use situ_device::{Drive, Nature, Space};

#[derive(Serialize)]
pub(crate) struct DriveReport {
    /// "yes", "no" or "unknown".
    compresses: &'static str,
    kind: String,
    /// The kernel's names of the devices from the path down to the drive.
    devices: Vec<String>,
    /// Others may keep something on the drive, and its figures count that, too.
    shared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exposes_percent_max: Option<u32>,
    /// The file system does not tell the drive what is deleted.
    keeps_discards: bool,
    logical_bytes: u64,
    logical_used_bytes: u64,
    /// Null where the drive does not say.
    physical_bytes: Option<u64>,
    physical_used_bytes: Option<u64>,
    physical_written_bytes: Option<u64>,
    /// The reason why a field is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The fault that the drive reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

impl DriveReport {
    /// Makes the report of a drive, with the space of the files on it. `trouble` is the fault that the drive itself
    /// reports.
    pub(crate) fn new(nature: Nature, space: Space, trouble: Option<String>) -> DriveReport {
        DriveReport {
            compresses: nature.compresses.word(),
            kind: nature.kind,
            devices: nature.devices,
            shared: nature.is_shared,
            exposes_percent_max: nature.exposes_percent_max,
            keeps_discards: nature.keeps_discards,
            logical_bytes: space.logical_total,
            logical_used_bytes: space.logical_used,
            physical_bytes: space.physical_total,
            physical_used_bytes: space.physical_used,
            physical_written_bytes: space.physical_written,
            why: nature.why,
            trouble,
        }
    }

    /// Makes the report of the drive under a path, with the space there.
    pub(crate) fn under(drive: &Drive, space: Space) -> DriveReport {
        DriveReport::new(drive.nature().clone(), space, drive.trouble())
    }

    /// Returns the lines to show, each with a word for its subject.
    pub(crate) fn lines(&self) -> [(&'static str, String); 4] {
        let (used, all) = (text::bytes(self.logical_used_bytes), text::bytes(self.logical_bytes));
        [
            ("drive", self.nature()),
            ("logical", format!("{used} of {all} in use")),
            ("physical", self.physical()),
            ("written", self.physical_written_bytes.map_or_else(|| UNKNOWN.to_owned(), Self::written)),
        ]
    }

    /// Returns the fault that deserves a warning.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn nature(&self) -> String {
        let below = if self.devices.is_empty() { String::new() } else { format!(" ({})", self.devices.join(" on ")) };
        let compresses = match (self.compresses, &self.why) {
            ("yes", _) => "it compresses".to_owned(),
            ("no", _) => "it does not compress".to_owned(),
            (_, Some(why)) => format!("unknown whether it compresses: {why}"),
            (_, None) => "unknown whether it compresses".to_owned(),
        };
        let most =
            self.exposes_percent_max.map(|percent| format!("; it exposes at most {percent}% of its physical space"));
        let kept = match self.keeps_discards && self.compresses == "yes" {
            true => "; deleted files take physical space until `fstrim`: the file system is mounted without `discard`",
            false => "",
        };
        format!("{}{below}, {compresses}{}{kept}", self.kind, most.unwrap_or_default())
    }

    fn physical(&self) -> String {
        let of = if self.shared { ", with what others keep on the drive" } else { "" };
        match (self.physical_used_bytes, self.physical_bytes) {
            (Some(used), Some(all)) => {
                let free = text::bytes(all.saturating_sub(used));
                format!("{} of {} in use, {free} free{of}", text::bytes(used), text::bytes(all))
            }
            (Some(used), None) => format!("{} in use{of}; how much there is in all is unknown", text::bytes(used)),
            (None, _) => UNKNOWN.to_owned(),
        }
    }

    fn written(bytes: u64) -> String {
        format!("{} physically, by the drive's own count", text::bytes(bytes))
    }
}

const UNKNOWN: &str = "unknown: the drive does not say";

#[cfg(test)]
mod tests {
    use super::*;
    use situ_device::Compresses;

    fn lines(nature: Nature, space: Space) -> [String; 4] {
        DriveReport::new(nature, space, None).lines().map(|(_, line)| line)
    }

    #[test]
    fn what_is_known_is_told_and_what_is_not_is_unknown() {
        let space = Space { logical_total: 4096, logical_used: 1024, ..Space::default() };
        let [drive, logical, physical, written] = lines(Nature::unknown("virtio disk", "it says nothing"), space);
        assert_eq!(drive, "virtio disk, unknown whether it compresses: it says nothing");
        assert_eq!(logical, "1.00 KiB of 4.00 KiB in use");
        assert_eq!((&*physical, &*written), (UNKNOWN, UNKNOWN));
        let devices = vec!["dm-0".to_owned(), "nvme0n1".to_owned()];
        let of = Nature::of(Compresses::Yes, "ScaleFlux");
        let nature = Nature { devices, exposes_percent_max: Some(400), is_shared: true, ..of };
        let physical = Space { physical_total: Some(2048), physical_used: Some(1024), ..space };
        let [drive, _, physical, written] = lines(nature, Space { physical_written: Some(8192), ..physical });
        assert_eq!(drive, "ScaleFlux (dm-0 on nvme0n1), it compresses; it exposes at most 400% of its physical space");
        assert_eq!(physical, "1.00 KiB of 2.00 KiB in use, 1.00 KiB free, with what others keep on the drive");
        assert_eq!(written, "8.00 KiB physically, by the drive's own count");
        let nature = Nature { keeps_discards: true, ..Nature::of(Compresses::Yes, "zram") };
        let [drive, ..] = lines(nature, space);
        assert!(drive.contains("mounted without `discard`"), "{drive}");
        let nature = Nature { keeps_discards: true, ..Nature::of(Compresses::No, "tmpfs") };
        assert_eq!(lines(nature, space)[0], "tmpfs, it does not compress");
        let half = Space { physical_used: Some(1024), ..space };
        let [_, _, physical, _] = lines(Nature::of(Compresses::No, "tmpfs"), half);
        assert_eq!(physical, "1.00 KiB in use; how much there is in all is unknown");
    }
}
