//! Ways down through descriptions as the kernel gives them, written to a directory.

use super::find::{Found, Kind, ScaleFlux, file_system, find};
use super::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A directory that stands for `/sys`.
struct Sys(tempfile::TempDir);

impl Sys {
    fn new() -> Sys {
        let sys = Sys(tempfile::tempdir().unwrap());
        fs::create_dir_all(sys.path("dev/block")).unwrap();
        sys
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), format!("{text}\n")).unwrap();
    }

    /// A device at `directory` with this minor number.
    fn device(&self, minor: u32, directory: &str) {
        fs::create_dir_all(self.path(directory)).unwrap();
        self.file(&format!("{directory}/dev"), &format!("9:{minor}"));
        symlink(self.path(directory), self.path(&format!("dev/block/9:{minor}"))).unwrap();
    }

    /// `upper` consists of `lower`, among others.
    fn consists(&self, upper: &str, lower: &str) {
        let slaves = self.path(upper).join("slaves");
        fs::create_dir_all(&slaves).unwrap();
        let lower = self.path(lower);
        symlink(&lower, slaves.join(lower.file_name().unwrap())).unwrap();
    }

    fn find(&self, minor: u32) -> Found {
        find(self.0.path(), rustix::fs::makedev(9, minor))
    }

    /// Whether it compresses, its kind, and the way.
    fn told(&self, minor: u32) -> (Compresses, String, String) {
        let nature = self.find(minor).nature;
        (nature.compresses, nature.kind, nature.devices.join(" "))
    }
}

fn told(compresses: Compresses, kind: &str, devices: &str) -> (Compresses, String, String) {
    (compresses, kind.to_owned(), devices.to_owned())
}

const ZRAM: &str = "devices/virtual/block/zram0";

fn with_zram() -> Sys {
    let sys = Sys::new();
    sys.device(0, ZRAM);
    sys
}

#[test]
fn zram_and_its_partitions_are_found() {
    let sys = with_zram();
    sys.device(1, &format!("{ZRAM}/zram0p1"));
    sys.file(&format!("{ZRAM}/zram0p1/partition"), "1");
    assert_eq!(sys.told(0), told(Compresses::Yes, "zram", "zram0"));
    assert_eq!(sys.told(1), told(Compresses::Yes, "zram", "zram0p1 zram0"));
    let (whole, part) = (sys.find(0), sys.find(1));
    assert!(!whole.nature.is_shared && part.nature.is_shared);
    assert_eq!(part.drive, Kind::Zram(sys.path(ZRAM).canonicalize().unwrap()));
}

#[test]
fn devices_that_hand_bytes_on_are_passed() {
    let sys = with_zram();
    for (minor, uuid) in [(1, "LVM-abc"), (2, "mpath-abc"), (3, "part1-mpath-abc")] {
        let directory = format!("devices/virtual/block/dm-{minor}");
        sys.device(minor, &directory);
        sys.file(&format!("{directory}/dm/uuid"), uuid);
        sys.consists(&directory, ZRAM);
        assert_eq!(sys.told(minor), told(Compresses::Yes, "zram", &format!("dm-{minor} zram0")));
        assert_eq!(sys.find(minor).nature.is_shared, minor != 2);
    }
    // A logical volume upon two parts of one drive, and an array upon these.
    sys.device(4, "devices/virtual/block/md0");
    sys.file("devices/virtual/block/md0/md/level", "raid0");
    sys.consists("devices/virtual/block/md0", "devices/virtual/block/dm-1");
    sys.consists("devices/virtual/block/md0", "devices/virtual/block/dm-2");
    assert_eq!(sys.told(4), told(Compresses::Yes, "zram", "md0 dm-1 zram0"));
    // With another drive, nobody knows whose figures would count.
    sys.device(5, "devices/virtual/block/zram1");
    sys.consists("devices/virtual/block/md0", "devices/virtual/block/zram1");
    assert_eq!(sys.told(4), told(Compresses::Unknown, "md array", "md0"));
    assert!(sys.find(4).nature.why.unwrap().contains("several drives"));
}

#[test]
fn a_device_that_changes_bytes_or_does_not_say_ends_the_way() {
    let sys = with_zram();
    for (minor, uuid) in [(1, "CRYPT-LUKS2-abc"), (2, ""), (3, "stratis-1")] {
        let directory = format!("devices/virtual/block/dm-{minor}");
        sys.device(minor, &directory);
        sys.file(&format!("{directory}/dm/uuid"), uuid);
        sys.consists(&directory, ZRAM);
    }
    assert_eq!(sys.told(1), told(Compresses::No, "encrypted device", "dm-1"));
    for minor in [2, 3] {
        assert_eq!(sys.told(minor), told(Compresses::Unknown, "device mapper", &format!("dm-{minor}")));
    }
    sys.device(4, "devices/virtual/block/dm-4");
    sys.file("devices/virtual/block/dm-4/dm/uuid", "LVM-nothing-below");
    assert_eq!(sys.told(4).0, Compresses::Unknown);
}

#[test]
fn vdo_is_known_by_its_name_or_its_statistics() {
    let sys = with_zram();
    for (minor, uuid) in [(1, "VDO-abc"), (2, "LVM-abc-vpool"), (3, "other")] {
        let directory = format!("devices/virtual/block/dm-{minor}");
        sys.device(minor, &directory);
        sys.file(&format!("{directory}/dm/uuid"), uuid);
        if minor == 3 {
            sys.file(&format!("{directory}/vdo/statistics/block_size"), "4096");
        }
        let found = sys.find(minor);
        assert_eq!(found.nature.kind, "dm-vdo");
        let number = Some(rustix::fs::makedev(9, minor));
        assert_eq!(found.drive, Kind::Vdo { directory: sys.path(&directory).canonicalize().unwrap(), number });
    }
    // A logical volume upon a pool is on the pool's drive.
    sys.device(4, "devices/virtual/block/dm-4");
    sys.file("devices/virtual/block/dm-4/dm/uuid", "LVM-abc");
    sys.consists("devices/virtual/block/dm-4", "devices/virtual/block/dm-2");
    assert_eq!(sys.told(4), told(Compresses::Yes, "dm-vdo", "dm-4 dm-2"));
}

/// A namespace with its controller, and one that several controllers of a subsystem have.
#[test]
fn a_scaleflux_drive_is_known_by_its_vendor() {
    let sys = Sys::new();
    for (minor, vendor, device) in [(0, "0xcc53", "0x0010"), (1, "0x1dfd", "0x0020"), (2, "0x144d", "0xa80a")] {
        let controller = format!("devices/pci0/0{minor}/nvme/nvme{minor}");
        sys.file(&format!("{controller}/model"), &format!("Model {minor}"));
        sys.file(&format!("devices/pci0/0{minor}/vendor"), vendor);
        sys.file(&format!("devices/pci0/0{minor}/device"), device);
        symlink(sys.path(&format!("devices/pci0/0{minor}")), sys.path(&format!("{controller}/device"))).unwrap();
        let namespace = format!("{controller}/nvme{minor}n1");
        sys.device(minor, &namespace);
        symlink(sys.path(&controller), sys.path(&format!("{namespace}/device"))).unwrap();
    }
    let scaleflux = |name: &str, is_quince| Kind::ScaleFlux(ScaleFlux { name: name.to_owned(), is_quince });
    assert_eq!(sys.find(0).drive, scaleflux("nvme0", false));
    assert_eq!(sys.find(1).drive, scaleflux("nvme1", true));
    assert_eq!(sys.find(0).nature.exposes_percent_max, Some(400));
    assert_eq!(sys.told(2), told(Compresses::Unknown, "NVMe drive (Model 2)", "nvme2n1"));

    let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
    sys.device(3, &format!("{subsystem}/nvme9n1"));
    symlink(sys.path(subsystem), sys.path(&format!("{subsystem}/nvme9n1/device"))).unwrap();
    symlink(sys.path("devices/pci0/01/nvme/nvme1"), sys.path(&format!("{subsystem}/nvme1"))).unwrap();
    assert_eq!(sys.find(3).drive, scaleflux("nvme1", true));

    // There is no such drive here to ask: its nature stays unknown, with the reason.
    let drive = Drive::from(Found { drive: scaleflux("nvme-of-nobody", false), ..sys.find(0) });
    assert_eq!((drive.nature().compresses, drive.counts()), (Compresses::Unknown, Counts::default()));
    assert!(drive.nature().why.as_ref().unwrap().starts_with("/dev/nvme-of-nobody does not answer"));
}

#[test]
fn the_file_of_a_loop_device_is_followed() {
    let sys = Sys::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    sys.device(0, "devices/virtual/block/loop0");
    fs::create_dir_all(sys.path("devices/virtual/block/loop0/loop")).unwrap();
    assert!(sys.find(0).nature.why.unwrap().contains("does not name its file"));
    sys.file("devices/virtual/block/loop0/loop/backing_file", "/nothing/here (deleted)");
    assert!(sys.find(0).nature.why.unwrap().contains("/nothing/here"));
    sys.file("devices/virtual/block/loop0/loop/backing_file", &file.path().display().to_string());
    let number = rustix::fs::stat(file.path()).unwrap().st_dev;
    if rustix::fs::major(number) == 0 {
        return assert!(sys.find(0).nature.why.unwrap().contains("no drive of its own"));
    }
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::create_dir_all(sys.path(ZRAM)).unwrap();
    symlink(sys.path(ZRAM), sys.path(&format!("dev/block/{major}:{minor}"))).unwrap();
    assert_eq!(sys.told(0), told(Compresses::Yes, "zram", "loop0 zram0"));
    assert!(sys.find(0).nature.is_shared);
}

#[test]
fn what_says_nothing_is_unknown_with_the_reason() {
    let sys = Sys::new();
    sys.device(0, "devices/virtio1/block/vda");
    sys.device(1, "devices/ata1/block/sda");
    sys.file("devices/ata1/block/sda/device/model", "A MODEL  ");
    sys.device(2, "devices/virtual/block/ram0");
    assert_eq!(sys.told(0), told(Compresses::Unknown, "virtio disk", "vda"));
    assert_eq!(sys.told(1), told(Compresses::Unknown, "disk (A MODEL)", "sda"));
    assert_eq!(sys.told(2), told(Compresses::No, "memory disk", "ram0"));
    assert!(sys.find(7).nature.why.unwrap().contains("does not describe block device 9:7"));
    assert_eq!(file_system(0x9123_683e).compresses, Compresses::Unknown);
    assert_eq!(file_system(0xffff_ffff_9123_683e).kind, "btrfs", "as some systems widen it");
    assert_eq!(file_system(0x0102_1994).compresses, Compresses::No);
    assert!(file_system(0x1234).why.unwrap().contains("0x1234"));
}

#[test]
fn devices_that_lie_on_each_other_in_a_circle_end() {
    let sys = Sys::new();
    for (minor, other) in [(0, 1), (1, 0)] {
        let directory = format!("devices/virtual/block/dm-{minor}");
        sys.device(minor, &directory);
        sys.file(&format!("{directory}/dm/uuid"), "LVM-circle");
        fs::create_dir_all(sys.path(&format!("devices/virtual/block/dm-{other}"))).unwrap();
        sys.consists(&directory, &format!("devices/virtual/block/dm-{other}"));
    }
    assert_eq!(sys.told(0).0, Compresses::Unknown);
}

#[test]
fn this_machine_s_own_directories_have_a_drive() {
    let directory = tempfile::tempdir().unwrap();
    let drive = Drive::under(directory.path()).unwrap();
    let same = Drive::of(&File::open(directory.path()).unwrap()).unwrap();
    assert_eq!(drive.nature(), same.nature());
    assert!(drive.nature().compresses == Compresses::Yes || drive.counts() == Counts::default(), "{drive:?}");
    assert_eq!(Drive::under(&directory.path().join("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
}
