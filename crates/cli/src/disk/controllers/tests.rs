//! The commands on a made-up machine, whose kernel is played.

use super::*;
use crate::failure::Exit;
use machine::{DRIVE, GROUP, Machine};
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

#[path = "../../../../device/tests/common/pci_machine.rs"]
mod machine;

#[derive(Clone, Default)]
struct Text(Rc<RefCell<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a command, and returns its output or its message.
fn run(json: bool, command: impl FnOnce(&mut Output) -> Outcome) -> Result<String, String> {
    let text = Text::default();
    let mut out = Output::to(text.clone(), json);
    let outcome = command(&mut out).map_err(|failure| {
        assert_eq!(failure.exit(), Exit::Failed);
        failure.message().unwrap().to_string()
    })?;
    assert_eq!(outcome, Exit::Done);
    out.finish().unwrap();
    let text = text.0.borrow().clone();
    Ok(String::from_utf8(text).unwrap())
}

fn shown(machine: &Machine) -> String {
    run(false, |out| show(&Controllers::under(machine.root()), out)).unwrap()
}

fn shown_json(machine: &Machine) -> Value {
    serde_json::from_str(&run(true, |out| show(&Controllers::under(machine.root()), out)).unwrap()).unwrap()
}

fn bound(machine: &Machine, force: bool, json: bool) -> Result<String, String> {
    let options = DiskBindOptions { address: DRIVE.parse().unwrap(), force };
    run(json, |out| bind(&options, &Controllers::under(machine.root()), machine, out))
}

fn unbound(machine: &Machine, json: bool) -> Result<String, String> {
    let options = DiskUnbindOptions { address: DRIVE.parse().unwrap() };
    run(json, |out| unbind(&options, &Controllers::under(machine.root()), machine, out))
}

/// Puts bytes on the drive.
fn put(machine: &Machine, bytes: &[u8], at: u64) {
    File::options().write(true).open(machine.at("dev/nvme0n1")).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn a_drive_is_shown_bound_and_given_back() {
    let machine = Machine::new();
    machine.device("0000:00:01.0", "0x060400", GROUP);
    machine.driven("0000:00:01.0", "pcieport");
    assert_eq!(
        shown(&machine),
        "0000:01:00.0  QEMU NVMe Ctrl, serial made-up\n\
         driver     nvme\n\
         group      14, with 0000:00:01.0 (pcieport)\n\
         nvme0n1    namespace 1, 1.00 MiB: nothing that Situ recognises\n\
         state      `situ disk bind 0000:01:00.0` can take it\n"
    );
    let said = bound(&machine, false, false).unwrap();
    assert!(said.starts_with("0000:01:00.0 is bound to vfio-pci now (IOMMU group 14)."), "{said}");
    assert!(said.contains("pci:0000:01:00.0/1") && said.contains("situ disk unbind 0000:01:00.0"), "{said}");
    assert!(shown(&machine).ends_with("state      bound: a store names its namespace 1 pci:0000:01:00.0/1\n"));
    assert!(bound(&machine, false, false).unwrap().contains("was bound to vfio-pci already"));
    let again: Value = serde_json::from_str(&bound(&machine, false, true).unwrap()).unwrap();
    let expected = serde_json::json!({ "address": DRIVE, "driver": "vfio-pci", "changed": false, "group": 14 });
    assert_eq!(again, expected);
    assert!(unbound(&machine, false).unwrap().contains("driver nvme has 0000:01:00.0 again"));
    assert!(unbound(&machine, false).unwrap().contains("driver nvme had 0000:01:00.0 already"));
    let again: Value = serde_json::from_str(&unbound(&machine, true).unwrap()).unwrap();
    assert_eq!(again, serde_json::json!({ "address": DRIVE, "driver": "nvme", "changed": false }));
}

#[test]
fn what_is_recognised_needs_force() {
    let machine = Machine::new();
    put(&machine, &[0x53, 0xef], 1080);
    let refused = bound(&machine, false, false).unwrap_err();
    assert!(refused.contains("cannot bind the drive: nvme0n1 holds an ext2, ext3 or ext4 file system"), "{refused}");
    assert!(refused.contains("--force"), "{refused}");
    assert_eq!(machine.driver().as_deref(), Some("nvme"));
    assert!(machine.steps().is_empty(), "nothing was written");
    let object = shown_json(&machine);
    assert_eq!(object["namespaces"][0]["contents"], "an ext2, ext3 or ext4 file system");
    assert_eq!((&object["needs_force"], &object["obstacles"]), (&true.into(), &serde_json::json!([])));
    assert!(shown(&machine).ends_with("state      `situ disk bind 0000:01:00.0` refuses it without --force\n"));
    bound(&machine, true, false).unwrap();
    assert_eq!(machine.driver().as_deref(), Some("vfio-pci"));

    // The last mark that is looked for, and one of a partition table.
    for (bytes, at) in [(&[0x0c, 0xb1, 0xba, 0][..], 0x2_1000), (&[0x55, 0xaa], 510)] {
        let machine = Machine::new();
        put(&machine, bytes, at);
        assert!(bound(&machine, false, false).unwrap_err().contains("nvme0n1 holds a"));
    }
    let machine = Machine::new();
    put(&machine, b"SITUDISK", 0);
    assert!(shown(&machine).contains("1.00 MiB: a Situ disk\n"));
    assert_eq!(shown_json(&machine)["needs_force"], false);
    bound(&machine, false, false).unwrap();
}

#[test]
fn force_takes_no_drive_in_use() {
    let machine = Machine::new();
    machine.mount("30 22 259:1 / /boot rw - vfat /dev/nvme0n1p1 rw");
    for force in [false, true] {
        let refused = bound(&machine, force, false).unwrap_err();
        assert!(refused.contains("0000:01:00.0 is in use: nvme0n1p1 is mounted at /boot"), "{refused}");
        assert!(refused.contains("unmount it") && !refused.contains("--force"), "{refused}");
    }
    let text = shown(&machine);
    assert!(text.contains("recognises; nvme0n1p1 is mounted at /boot\n"), "{text}");
    let state = "state      cannot be bound: 0000:01:00.0 is in use: nvme0n1p1 is mounted at /boot\n";
    assert!(text.ends_with(state), "{text}");
    let machine = Machine::new();
    machine.busy.borrow_mut().insert("dev/nvme0n1");
    assert!(bound(&machine, true, false).unwrap_err().contains("exclusive use"));
    let machine = Machine::new();
    machine.without_iommu();
    assert!(bound(&machine, true, false).unwrap_err().contains("intel_iommu=on"));
    assert_eq!(shown_json(&machine)["group"], Value::Null);
    assert!(shown(&machine).contains("group      none: without an IOMMU\n"));
}

/// A drive that no driver has may hold anything.
#[test]
fn a_drive_that_nothing_can_look_at_needs_force() {
    let machine = Machine::new();
    machine.writes_left.set(2);
    bound(&machine, false, false).unwrap_err();
    assert_eq!(machine.driver(), None, "the process died in the middle");
    machine.writes_left.set(usize::MAX);
    let text = shown(&machine);
    assert!(
        text.starts_with("0000:01:00.0\ndriver     none\n") && text.ends_with("refuses it without --force\n"),
        "{text}"
    );
    let refused = bound(&machine, false, false).unwrap_err();
    assert!(refused.contains("contents are unknown") && refused.contains("situ disk unbind 0000:01:00.0"), "{refused}");
    unbound(&machine, false).unwrap();
    assert_eq!(machine.driver().as_deref(), Some("nvme"));
    machine.writes_left.set(2);
    bound(&machine, false, false).unwrap_err();
    machine.writes_left.set(usize::MAX);
    bound(&machine, true, false).unwrap();
    assert_eq!(machine.driver().as_deref(), Some("vfio-pci"));
}

#[test]
fn a_drive_in_a_process_is_not_given_back() {
    let machine = Machine::new();
    bound(&machine, false, false).unwrap();
    machine.busy.borrow_mut().insert("dev/vfio/14");
    machine.process(4_000_000_001, "situ", "/dev/vfio/14");
    let refused = unbound(&machine, false).unwrap_err();
    assert!(refused.contains("cannot give the drive back to the kernel: "), "{refused}");
    assert!(refused.contains("process 4000000001 (situ)") && refused.contains("stop that process"), "{refused}");
}

#[test]
fn an_ordinary_user_reads_that_root_is_needed() {
    let machine = Machine::new();
    machine.is_ordinary_user.set(true);
    assert!(bound(&machine, false, false).unwrap_err().contains("run the command as root"));
}

#[test]
fn json_has_an_object_for_each_controller() {
    let machine = Machine::new();
    machine.device("0000:01:00.1", "0x0c0330", GROUP);
    machine.driven("0000:01:00.1", "xhci_hcd");
    let object = shown_json(&machine);
    assert_eq!(object["address"], DRIVE);
    assert_eq!((&object["driver"], &object["group"], &object["bound"]), (&"nvme".into(), &14.into(), &false.into()));
    assert_eq!(object["group_others"][0], serde_json::json!({ "name": "0000:01:00.1", "driver": "xhci_hcd" }));
    let namespace = serde_json::json!({ "name": "nvme0n1", "id": 1, "bytes": 1 << 20, "uses": [], "contents": null });
    assert_eq!(object["namespaces"], serde_json::json!([namespace]));
    assert!(object["obstacles"][0].as_str().unwrap().contains("0000:01:00.1 (xhci_hcd)"), "{object}");
    // A device file that is missing is no empty drive.
    fs::remove_file(machine.at("dev/nvme0n1")).unwrap();
    let object = shown_json(&machine);
    let unknown = object["namespaces"][0]["contents_unknown"].as_str().unwrap();
    assert!(unknown.contains("dev/nvme0n1: No such"), "{object}");
    machine.device("0000:00:04.0", "0x010802", 3);
    let objects = run(true, |out| show(&Controllers::under(machine.root()), out)).unwrap();
    assert_eq!(objects.lines().count(), 2);
    let none = Controllers::under(machine.at("none"));
    assert_eq!(run(true, |out| show(&none, out)).unwrap(), "");
    assert_eq!(run(false, |out| show(&none, out)).unwrap(), "no NVMe controllers on PCI\n");
}
