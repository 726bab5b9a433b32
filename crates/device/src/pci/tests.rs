//! Controllers of a made-up machine.

use super::*;
use machine::{DRIVE, GROUP, Machine};
use rustix::io::Errno;

#[path = "../../tests/common/pci_machine.rs"]
mod machine;

fn controllers(machine: &Machine) -> Controllers {
    Controllers::under(machine.root())
}

fn drive(machine: &Machine) -> Controller {
    controllers(machine).find(DRIVE.parse().unwrap()).unwrap()
}

fn bind(machine: &Machine) -> Result<()> {
    drive(machine).claim(machine)?.bind()
}

fn unbind(machine: &Machine) -> Result<Unbound> {
    drive(machine).unbind(machine)
}

/// Returns the text of a refusal, after a check that nothing has changed.
fn refused(machine: &Machine) -> String {
    let (driver, written) = (machine.driver(), machine.steps());
    let error = bind(machine).unwrap_err();
    assert_eq!((machine.driver(), machine.steps()), (driver, written), "{error}");
    assert!(error.cure().is_some(), "{error}");
    error.to_string()
}

#[test]
fn addresses_have_one_form() {
    let shown = |text: &str| text.parse::<Address>().map(|address| address.to_string());
    assert_eq!(shown("0000:01:00.0").as_deref(), Ok(DRIVE));
    assert_eq!(shown("01:00.0").as_deref(), Ok(DRIVE));
    assert_eq!(shown("10000:e1:1F.7").as_deref(), Ok("10000:e1:1f.7"));
    for wrong in ["", "1", "01:00", "01:00.8", "01:20.0", "100:00.0", "+1:00.0", "0:0:0:0.0", "../01:00.0", "01:00.0/1"]
    {
        let why = shown(wrong).unwrap_err();
        assert!(why.contains("0000:01:00.0"), "{wrong}: {why}");
    }
}

#[test]
fn controllers_are_listed_with_what_the_kernel_says() {
    let machine = Machine::new();
    machine.device("0000:00:04.0", "0x010802", 3);
    let listed = controllers(&machine).list().unwrap();
    let [bare, drive] = &*listed else { panic!("{listed:?}") };
    assert_eq!((bare.address().to_string().as_str(), bare.driver(), bare.group()), ("0000:00:04.0", None, Some(3)));
    assert_eq!((bare.model(), bare.namespaces().unwrap()), (None, Vec::new()));
    assert_eq!((drive.address().to_string().as_str(), drive.driver()), (DRIVE, Some("nvme")));
    assert_eq!((drive.model(), drive.serial()), (Some("QEMU NVMe Ctrl"), Some("made-up")));
    assert_eq!((drive.group(), drive.is_bound()), (Some(GROUP), false));
    assert_eq!(drive.directory(), machine.at("sys/bus/pci/devices/0000:01:00.0"));
    assert_eq!(drive.group_file(), Some(machine.at("dev/vfio/14")));
    let namespaces = drive.namespaces().unwrap();
    let [namespace] = &*namespaces else { panic!("{namespaces:?}") };
    assert_eq!((&*namespace.name, namespace.id, namespace.bytes), ("nvme0n1", 1, 1 << 20));
    assert!(namespace.uses.is_empty() && drive.obstacles().unwrap().is_empty());
    assert!(Controllers::under(machine.at("none")).list().unwrap().is_empty(), "a machine without PCI");
}

#[test]
fn what_is_no_controller_is_named() {
    let machine = Machine::new();
    let find = |address: &str| controllers(&machine).find(address.parse().unwrap()).unwrap_err();
    let other = find("0000:02:00.0");
    assert!(other.to_string().contains("class has 0x040300, and not 0x010802"), "{other}");
    let none = find("0000:03:00.0");
    assert!(none.to_string().contains("sys/bus/pci/devices/0000:03:00.0 does not exist"), "{none}");
    assert!(none.cure().unwrap().contains("situ disk show"));
}

/// A drive with two paths has a block device that is described elsewhere.
#[test]
fn namespaces_have_the_names_of_their_block_devices() {
    let machine = Machine::new();
    let nvme = machine.at(&format!("sys/bus/pci/devices/{DRIVE}/nvme/nvme0"));
    fs::remove_dir(nvme.join("nvme0n1")).unwrap();
    for entry in ["nvme2c0n1", "nvme2c0n10", "nvme2c", "ng2n1", "nvme", "nvme2n1p1"] {
        fs::create_dir(nvme.join(entry)).unwrap();
    }
    machine.file("sys/class/block/nvme2n10/nsid", "7\n");
    let found = drive(&machine).namespaces().unwrap();
    let found: Vec<(&str, u32)> = found.iter().map(|namespace| (&*namespace.name, namespace.id)).collect();
    assert_eq!(found, [("nvme2n1", 1), ("nvme2n10", 7)]);
}

#[test]
fn a_drive_is_bound_and_given_back() {
    let machine = Machine::new();
    bind(&machine).unwrap();
    assert_eq!((machine.driver().as_deref(), &*machine.overridden()), (Some("vfio-pci"), "vfio-pci"));
    let steps = machine.steps();
    assert_eq!(steps, ["driver_override \"vfio-pci\"", "unbind \"0000:01:00.0\"", "drivers_probe \"0000:01:00.0\""]);
    let bound = drive(&machine);
    assert!(bound.is_bound() && bound.namespaces().unwrap().is_empty() && bound.obstacles().unwrap().is_empty());
    bind(&machine).unwrap();
    assert_eq!(machine.steps(), steps, "a bound drive is left alone");

    assert_eq!(unbind(&machine).unwrap(), Unbound::Now("nvme".to_owned()));
    assert_eq!((machine.driver().as_deref(), &*machine.overridden()), (Some("nvme"), "(null)"));
    let steps = machine.steps();
    assert_eq!(unbind(&machine).unwrap(), Unbound::Before("nvme".to_owned()));
    assert_eq!(machine.steps(), steps);
    // It can be bound again.
    bind(&machine).unwrap();
    assert_eq!(machine.driver().as_deref(), Some("vfio-pci"));
}

#[test]
fn a_drive_in_use_is_never_bound() {
    let mounts = [
        ("30 22 259:0 / /mnt/a\\040b rw shared:2 - ext4 /dev/root rw", "nvme0n1 is mounted at /mnt/a b"),
        ("30 22 259:1 / /boot rw - vfat /dev/nvme0n1p1 rw", "nvme0n1p1 is mounted at /boot"),
        ("30 22 0:45 /sub /data rw - btrfs /dev/nvme0n1p1 rw", "nvme0n1p1 is mounted at /data"),
    ];
    for (line, why) in mounts {
        let machine = Machine::new();
        machine.mount("31 22 259:10 / /other rw - ext4 /dev/nvme0n10 rw");
        assert!(drive(&machine).obstacles().unwrap().is_empty());
        machine.mount(line);
        assert_eq!(refused(&machine), format!("0000:01:00.0 is in use: {why}"));
    }
    let machine = Machine::new();
    machine.file("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme0n1p1 partition 1 0 -2\n");
    assert!(refused(&machine).ends_with("nvme0n1p1 is swap space"));

    let machine = Machine::new();
    machine.file("sys/class/block/nvme0n1/holders/dm-3/dm/name", "vg-log\n");
    fs::create_dir_all(machine.at("sys/class/block/nvme0n1/nvme0n1p1/holders/md0")).unwrap();
    assert!(refused(&machine).ends_with("nvme0n1 is part of dm-3 (vg-log), nvme0n1p1 is part of md0"));

    for file in ["nvme0n1", "nvme0n1p1", "ng0n1"] {
        let machine = Machine::new();
        machine.process(std::process::id(), "self", &format!("/dev/{file}"));
        assert!(drive(&machine).obstacles().unwrap().is_empty(), "the files of this process do not count");
        machine.process(4_000_000_001, "oracle", &format!("/dev/{file}"));
        assert!(refused(&machine).ends_with(&format!("{file} is open in process 4000000001 (oracle)")));
    }
    // Mount points are any bytes, and without the list nothing is known of mounts.
    let machine = Machine::new();
    let line = b"30 22 259:0 / /mnt/\xff rw - ext4 /dev/root rw\n";
    fs::write(machine.at("proc/self/mountinfo"), line).unwrap();
    assert!(refused(&machine).contains("nvme0n1 is mounted at /mnt/"));
    fs::remove_file(machine.at("proc/self/mountinfo")).unwrap();
    assert!(bind(&machine).unwrap_err().to_string().contains("proc/self/mountinfo"));
    assert!(machine.steps().is_empty());
    // A mount of another mount namespace, which only the kernel knows.
    let machine = Machine::new();
    machine.busy.borrow_mut().insert("dev/nvme0n1");
    assert!(refused(&machine).contains("nvme0n1 is in exclusive use"));
}

/// The claim is held until the kernel's driver has let go.
#[test]
fn a_claim_has_all_namespaces_open() {
    let machine = Machine::new();
    let drive = drive(&machine);
    let claimed = drive.claim(&machine).unwrap();
    let names: Vec<&str> = claimed.disks().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["nvme0n1"]);
    assert_eq!(claimed.disks()[0].1.metadata().unwrap().len(), 1 << 20);
}

#[test]
fn a_drive_that_vfio_cannot_give_out_is_not_bound() {
    let machine = Machine::new();
    machine.without_iommu();
    assert!(refused(&machine).contains("in no IOMMU group (/sys/bus/pci/devices/0000:01:00.0/iommu_group)"));
    assert_eq!(drive(&machine).group(), None);

    // A group that VFIO made up, in its mode without IOMMU.
    let machine = Machine::new();
    machine.file("sys/kernel/iommu_groups/14/name", "vfio-noiommu\n");
    assert!(refused(&machine).contains("without an IOMMU"));
    assert_eq!(drive(&machine).group_file(), Some(machine.at("dev/vfio/noiommu-14")));

    let machine = Machine::new();
    for (address, class, driver) in [
        ("0000:00:01.0", "0x060400", Some("pcieport")),
        ("0000:01:00.1", "0x010802", Some("vfio-pci")),
        ("0000:01:00.2", "0x020000", None),
        ("0000:01:00.3", "0x020000", Some("pci-stub")),
    ] {
        machine.device(address, class, GROUP);
        driver.into_iter().for_each(|driver| machine.driven(address, driver));
    }
    assert!(drive(&machine).obstacles().unwrap().is_empty());
    assert_eq!(drive(&machine).neighbours().unwrap().len(), 4);
    machine.device("0000:01:00.4", "0x0c0330", GROUP);
    machine.driven("0000:01:00.4", "xhci_hcd");
    assert_eq!(
        refused(&machine),
        "IOMMU group 14 has other devices that drivers of the kernel use: 0000:01:00.4 (xhci_hcd)"
    );

    let machine = Machine::new();
    machine.taken_by("uio_pci_generic");
    assert!(refused(&machine).contains("the driver uio_pci_generic has 0000:01:00.0"));
}

#[test]
fn the_module_is_loaded_if_it_is_there() {
    let machine = Machine::new();
    assert!(!machine.at("sys/bus/pci/drivers/vfio-pci").exists());
    bind(&machine).unwrap();

    let machine = Machine::new();
    machine.modules.borrow_mut().remove("vfio-pci");
    machine.file("lib/modules/6.1.0-test/modules.dep", "kernel/x.ko: kernel/vfio-pci.ko\n");
    let obstacles = drive(&machine).obstacles().unwrap();
    let [missing] = &*obstacles else { panic!("{obstacles:?}") };
    assert!(missing.to_string().contains("lib/modules/6.1.0-test/modules.dep does not list it"), "{missing}");
    let why = refused(&machine);
    assert!(why.contains("the kernel's module vfio-pci cannot be loaded: modprobe: FATAL"), "{why}");

    // Built into the kernel.
    machine.file("lib/modules/6.1.0-test/modules.builtin", "kernel/drivers/vfio/pci/vfio-pci.ko\n");
    assert!(drive(&machine).obstacles().unwrap().is_empty());
}

#[test]
fn an_ordinary_user_changes_nothing() {
    let machine = Machine::new();
    machine.is_ordinary_user.set(true);
    let error = bind(&machine).unwrap_err();
    assert!(error.to_string().contains("dev/nvme0n1: Permission denied"), "{error}");
    assert_eq!(error.cure().as_deref(), Some("run the command as root"));
    machine.is_ordinary_user.set(false);
    bind(&machine).unwrap();
    machine.is_ordinary_user.set(true);
    let error = unbind(&machine).unwrap_err();
    assert_eq!(error.cure().as_deref(), Some("run the command as root"), "{error}");
    assert_eq!(machine.driver().as_deref(), Some("vfio-pci"));
}

/// A probe that fails leaves no drive without a driver.
#[test]
fn a_drive_that_vfio_does_not_take_is_given_back() {
    let machine = Machine::new();
    machine.failing.borrow_mut().insert("vfio-pci");
    let error = bind(&machine).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("vfio-pci did not take 0000:01:00.0: cannot write \"0000:01:00.0\" to"), "{text}");
    assert!(text.contains("drivers_probe") && text.ends_with("the driver nvme has it now"), "{text}");
    assert_eq!((machine.driver().as_deref(), &*machine.overridden()), (Some("nvme"), "(null)"));

    let machine = Machine::new();
    machine.failing.borrow_mut().extend(["vfio-pci", "nvme"]);
    let error = bind(&machine).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the drive was not given back") && text.ends_with("no driver has it now"), "{text}");
    assert!(error.cure().unwrap().contains("situ disk unbind 0000:01:00.0"));
    machine.failing.borrow_mut().clear();
    assert_eq!(unbind(&machine).unwrap(), Unbound::Now("nvme".to_owned()));
}

#[test]
fn a_drive_in_a_process_is_not_given_back() {
    let machine = Machine::new();
    bind(&machine).unwrap();
    let steps = machine.steps();
    machine.busy.borrow_mut().insert("dev/vfio/14");
    let unknown = unbind(&machine).unwrap_err();
    assert!(unknown.to_string().starts_with("a process has ") && unknown.to_string().ends_with("dev/vfio/14 open"));
    machine.process(4_000_000_001, "situ", "/dev/vfio/14");
    machine.process(4_000_000_002, "qemu", "/dev/vfio/15");
    let error = unbind(&machine).unwrap_err();
    assert!(error.to_string().ends_with("dev/vfio/14 is open in process 4000000001 (situ)"), "{error}");
    assert!(error.cure().is_some());
    assert_eq!((machine.driver().as_deref(), machine.steps()), (Some("vfio-pci"), steps));
    machine.busy.borrow_mut().clear();
    unbind(&machine).unwrap();
}

#[test]
fn a_drive_that_no_driver_takes_back_is_named() {
    let machine = Machine::new();
    bind(&machine).unwrap();
    machine.vfio_takes_all.set(true);
    let error = unbind(&machine).unwrap_err();
    assert!(error.to_string().contains("new_id") && error.to_string().contains("vfio-pci has it now"), "{error}");
    machine.vfio_takes_all.set(false);

    // The driver's module was taken out of the kernel.
    fs::remove_dir(machine.at("sys/bus/pci/drivers/nvme")).unwrap();
    machine.modules.borrow_mut().remove("nvme");
    let error = unbind(&machine).unwrap_err();
    assert!(error.to_string().contains("module nvme cannot be loaded"), "{error}");
    machine.modules.borrow_mut().insert("nvme");
    assert_eq!(unbind(&machine).unwrap(), Unbound::Now("nvme".to_owned()));
}

/// A process that dies leaves what it has written so far: no step of it is taken back.
#[test]
fn a_bind_or_unbind_that_is_cut_anywhere_is_taken_back_by_unbind() {
    let kernels = Some("nvme".to_owned());
    for is_bound in [false, true] {
        for writes in 0..=4 {
            let machine = Machine::new();
            if is_bound {
                bind(&machine).unwrap();
            }
            machine.writes_left.set(writes);
            let cut = if is_bound { unbind(&machine).is_err() } else { bind(&machine).is_err() };
            assert_eq!(cut, writes < 3, "each has three writes");
            machine.writes_left.set(usize::MAX);
            unbind(&machine).unwrap();
            assert_eq!((machine.driver(), &*machine.overridden()), (kernels.clone(), "(null)"), "cut at {writes}");
            bind(&machine).unwrap();
        }
    }
}

/// The kernel refuses one step, and the process goes on.
#[test]
fn a_write_that_fails_is_named_with_its_file() {
    let machine = Machine::new();
    machine.writes_left.set(0);
    let error = bind(&machine).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot write \"vfio-pci\" to ") && error.to_string().contains("driver_override")
    );
    assert_eq!(machine.driver().as_deref(), Some("nvme"));
    let denied = Error::io("read", Path::new("/x"), Errno::PERM.into());
    assert_eq!(denied.cure().as_deref(), Some("run the command as root"));
}
