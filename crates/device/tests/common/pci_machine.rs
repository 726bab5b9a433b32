//! A made-up machine with an NVMe drive on PCI, whose kernel reacts as Linux does.
//!
//! The machine has the drive 0000:01:00.0 in IOMMU group 14, and a sound device 0000:02:00.0 in group 15. The module
//! that has this file as a child imports `Kernel`.

use super::Kernel;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub(crate) const DRIVE: &str = "0000:01:00.0";
pub(crate) const GROUP: u32 = 14;
const BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Machine {
    root: tempfile::TempDir,
    /// The writes to files of the kernel, in their order: file name and text.
    pub(crate) written: RefCell<Vec<(String, String)>>,
    /// The writes that are still carried out before the process dies.
    pub(crate) writes_left: Cell<usize>,
    /// Drivers whose probe of the drive fails.
    pub(crate) failing: RefCell<BTreeSet<&'static str>>,
    /// Devices that an exclusive open finds in use.
    pub(crate) busy: RefCell<BTreeSet<&'static str>>,
    /// Modules that are loaded on demand.
    pub(crate) modules: RefCell<BTreeSet<&'static str>>,
    /// The user is not root.
    pub(crate) is_ordinary_user: Cell<bool>,
    /// `vfio-pci` takes all drives of this kind, by `new_id`.
    pub(crate) vfio_takes_all: Cell<bool>,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let machine = Machine {
            root: tempfile::tempdir().unwrap(),
            written: RefCell::default(),
            writes_left: Cell::new(usize::MAX),
            failing: RefCell::default(),
            busy: RefCell::default(),
            modules: RefCell::new(BTreeSet::from(["vfio-pci", "nvme"])),
            is_ordinary_user: Cell::new(false),
            vfio_takes_all: Cell::new(false),
        };
        machine.device(DRIVE, "0x010802", GROUP);
        machine.device("0000:02:00.0", "0x040300", 15);
        for driver in ["nvme", "pcieport", "snd_hda_intel"] {
            fs::create_dir_all(machine.at("sys/bus/pci/drivers").join(driver)).unwrap();
        }
        machine.file("proc/sys/kernel/osrelease", "6.1.0-test\n");
        let modules = "kernel/drivers/vfio/pci/vfio-pci.ko: kernel/drivers/vfio/vfio.ko\nkernel/fs/ext4.ko:\n";
        machine.file("lib/modules/6.1.0-test/modules.dep", modules);
        machine.file("proc/self/mountinfo", "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n");
        machine.file("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
        fs::create_dir_all(machine.at("dev")).unwrap();
        File::create(machine.at("dev/nvme0n1")).unwrap().set_len(BYTES).unwrap();
        machine.driven("0000:02:00.0", "snd_hda_intel");
        machine.taken_by("nvme");
        machine
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn drive(&self, file: &str) -> PathBuf {
        self.at("sys/bus/pci/devices").join(DRIVE).join(file)
    }

    /// Adds a device without a driver.
    pub(crate) fn device(&self, address: &str, class: &str, group: u32) {
        let directory = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{directory}/class"), &format!("{class}\n"));
        self.file(&format!("{directory}/driver_override"), "(null)\n");
        let members = self.at(&format!("sys/kernel/iommu_groups/{group}/devices"));
        fs::create_dir_all(&members).unwrap();
        symlink(self.at(&directory), members.join(address)).unwrap();
        symlink(format!("../../../../kernel/iommu_groups/{group}"), self.at(&directory).join("iommu_group")).unwrap();
    }

    /// Gives a device that is not the drive to a driver.
    pub(crate) fn driven(&self, address: &str, driver: &str) {
        let link = self.at(&format!("sys/bus/pci/devices/{address}/driver"));
        _ = fs::remove_file(&link);
        symlink(format!("../../../bus/pci/drivers/{driver}"), link).unwrap();
    }

    /// Takes the drive from its IOMMU group, as on a machine without an IOMMU.
    pub(crate) fn without_iommu(&self) {
        fs::remove_file(self.drive("iommu_group")).unwrap();
        fs::remove_dir_all(self.at("sys/kernel/iommu_groups")).unwrap();
    }

    /// A line of `/proc/self/mountinfo` is added.
    pub(crate) fn mount(&self, line: &str) {
        let path = self.at("proc/self/mountinfo");
        fs::write(&path, fs::read_to_string(&path).unwrap() + line + "\n").unwrap();
    }

    /// A process has a file open.
    pub(crate) fn process(&self, id: u32, name: &str, open: &str) {
        self.file(&format!("proc/{id}/comm"), &format!("{name}\n"));
        fs::create_dir_all(self.at(&format!("proc/{id}/fd"))).unwrap();
        symlink(open, self.at(&format!("proc/{id}/fd/3"))).unwrap();
    }

    pub(crate) fn driver(&self) -> Option<String> {
        let target = fs::read_link(self.drive("driver")).ok()?;
        Some(target.file_name().unwrap().to_str().unwrap().to_owned())
    }

    pub(crate) fn overridden(&self) -> String {
        fs::read_to_string(self.drive("driver_override")).unwrap().trim().to_owned()
    }

    /// Returns the texts that were written, each after the name of its file.
    pub(crate) fn steps(&self) -> Vec<String> {
        self.written.borrow().iter().map(|(file, text)| format!("{file} {text:?}")).collect()
    }

    /// The driver takes the drive, with all that follows.
    pub(crate) fn taken_by(&self, driver: &str) {
        self.driven(DRIVE, driver);
        match driver {
            "nvme" => {
                let nvme = format!("sys/bus/pci/devices/{DRIVE}/nvme/nvme0");
                self.file(&format!("{nvme}/model"), "QEMU NVMe Ctrl                          \n");
                self.file(&format!("{nvme}/serial"), "made-up             \n");
                fs::create_dir_all(self.at(&format!("{nvme}/nvme0n1"))).unwrap();
                fs::create_dir_all(self.at(&format!("{nvme}/hwmon1"))).unwrap();
                let block = "sys/class/block/nvme0n1";
                self.file(&format!("{block}/dev"), "259:0\n");
                self.file(&format!("{block}/nsid"), "1\n");
                self.file(&format!("{block}/size"), &format!("{}\n", BYTES / 512));
                self.file(&format!("{block}/nvme0n1p1/dev"), "259:1\n");
                self.file(&format!("{block}/nvme0n1p1/partition"), "1\n");
                fs::create_dir_all(self.at(&format!("{block}/holders"))).unwrap();
                fs::create_dir_all(self.at(&format!("{block}/nvme0n1p1/holders"))).unwrap();
            }
            "vfio-pci" => self.file(&format!("dev/vfio/{GROUP}"), ""),
            _ => {}
        }
    }

    fn let_go(&self) {
        fs::remove_file(self.drive("driver")).unwrap();
        for gone in [self.drive("nvme"), self.at("sys/class/block")] {
            _ = fs::remove_dir_all(gone);
        }
        _ = fs::remove_file(self.at(&format!("dev/vfio/{GROUP}")));
    }

    fn probe(&self) -> io::Result<()> {
        let has = |driver: &str| self.at("sys/bus/pci/drivers").join(driver).exists();
        let wanted = match &*self.overridden() {
            "vfio-pci" => "vfio-pci",
            _ if self.vfio_takes_all.get() => "vfio-pci",
            _ => "nvme",
        };
        if self.driver().is_none() && has(wanted) {
            if self.failing.borrow().contains(wanted) {
                return Err(Errno::INVAL.into());
            }
            self.taken_by(wanted);
        }
        Ok(())
    }
}

impl Kernel for Machine {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        if self.is_ordinary_user.get() {
            return Err(Errno::ACCESS.into());
        }
        let Some(left) = self.writes_left.get().checked_sub(1) else {
            return Err(io::Error::other("the process died"));
        };
        self.writes_left.set(left);
        let path = file.strip_prefix(self.root()).unwrap().to_str().unwrap();
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        self.written.borrow_mut().push((name, text.to_owned()));
        match path.strip_prefix("sys/bus/pci/").unwrap() {
            "drivers_probe" => {
                assert_eq!(text, DRIVE);
                self.probe()
            }
            "devices/0000:01:00.0/driver_override" => {
                let shown = if text == "\n" { "(null)\n".to_owned() } else { format!("{text}\n") };
                fs::write(file, shown)
            }
            other => {
                let driver = other.strip_prefix("drivers/").and_then(|other| other.strip_suffix("/unbind")).unwrap();
                assert_eq!(text, DRIVE);
                if self.driver().as_deref() != Some(driver) {
                    return Err(Errno::NODEV.into());
                }
                self.let_go();
                Ok(())
            }
        }
    }

    fn claim(&self, device: &Path) -> io::Result<File> {
        if self.is_ordinary_user.get() {
            return Err(Errno::ACCESS.into());
        }
        let name = device.strip_prefix(self.root()).unwrap().to_str().unwrap();
        if self.busy.borrow().contains(name) {
            return Err(Errno::BUSY.into());
        }
        File::open(device)
    }

    fn load(&self, module: &str) -> io::Result<()> {
        if !self.modules.borrow().contains(module) {
            return Err(io::Error::other("modprobe: FATAL: Module not found"));
        }
        fs::create_dir_all(self.at("sys/bus/pci/drivers").join(module))
    }
}
