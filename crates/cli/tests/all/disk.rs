//! `disk format`, `disk show`, `disk check`.

use crate::block_devices::{Mounted, Zram};
use crate::common;
use crate::common::situ;
use crate::skipped;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn blank(at: &Path, bytes: u64) {
    File::create(at.join("disk")).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_disk_is_formatted_shown_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    blank(at, 64 << 20);
    let text = situ(at, &["disk", "format", "disk", "--log", "16M"]).done().text();
    assert!(text.contains("log area") && text.contains("16.0 MiB used by 0 files"), "{text}");
    let shown = situ(at, &["disk", "show", "disk", "--json", "--files"]).done().json();
    assert_eq!((shown["log"]["bytes"].as_u64(), shown["generation"].as_u64()), (Some(16 << 20), Some(1)), "{shown}");
    assert_eq!(shown["files"].as_array().map(Vec::len), Some(0));
    assert!(shown["overhead_bytes"].as_u64() < Some((64 << 20) / 100), "{shown}");
    assert!(situ(at, &["disk", "show", "disk"]).done().text().contains(shown["id"].as_str().unwrap()));
    assert!(situ(at, &["disk", "check", "disk"]).done().text().ends_with("all is sound\n"));

    // Nor is what somebody has open.
    let held = situ_device::open(&at.join("disk"), situ_device::OpenOptions::default()).unwrap();
    let lock = held.lock().unwrap();
    let refused = situ(at, &["disk", "format", "disk", "--force"]);
    assert!(refused.code == 1 && refused.stderr.contains("is locked by another process"), "{refused:?}");
    situ(at, &["disk", "show", "disk"]).done();
    drop(lock);

    // What is there is not formatted again, but by force.
    let refused = situ(at, &["disk", "format", "disk"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("holds a Situ disk") && refused.stderr.contains("--force"), "{refused:?}");
    let again = situ(at, &["disk", "format", "disk", "--force", "--json"]).done().json();
    assert_eq!(again["generation"].as_u64(), Some(2));
    assert_ne!(again["id"], shown["id"]);
}

#[test]
fn damage_is_named_and_has_an_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    blank(at, 16 << 20);
    situ(at, &["disk", "format", "disk"]).done();
    let file = File::options().write(true).open(at.join("disk")).unwrap();
    file.write_all_at(b"?", 50).unwrap();
    let checked = situ(at, &["disk", "check", "disk"]);
    assert_eq!(checked.code, 4, "{checked:?}");
    assert!(checked.text().contains("copy 0 of the superblock"), "{checked:?}");
    let shown = situ(at, &["disk", "show", "disk"]).done();
    assert!(shown.stderr.contains("copy 0 of the superblock is damaged"), "{shown:?}");
    // The journal, too: now it cannot be shown.
    file.write_all_at(b"?", 4096 + 70).unwrap();
    let checked = situ(at, &["disk", "check", "disk", "--json"]);
    assert_eq!((checked.code, checked.json()["sound"].as_bool()), (4, Some(false)));
    let shown = situ(at, &["disk", "show", "disk"]);
    assert!(shown.code == 4 && shown.stderr.contains("situ disk check disk"), "{shown:?}");
}

#[test]
fn what_is_no_disk_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let missing = situ(at, &["disk", "show", "disk"]);
    assert!(missing.code == 1 && missing.stderr.contains("cannot show disk"), "{missing:?}");
    blank(at, 16 << 20);
    let none = situ(at, &["disk", "show", "disk"]);
    assert!(none.code == 1 && none.stderr.contains("situ disk format"), "{none:?}");
    // Nothing is damaged that never was one.
    let checked = situ(at, &["disk", "check", "disk"]);
    assert!(checked.code == 1 && checked.stderr.contains("is not a Situ disk: it has zeros"), "{checked:?}");
    assert!(!checked.text().contains("damaged"), "{checked:?}");
    blank(at, 1 << 16);
    let small = situ(at, &["disk", "format", "disk"]);
    assert!(small.code == 1 && small.stderr.contains("has no room"), "{small:?}");
    blank(at, 1000);
    for command in ["format", "show", "check"] {
        let small = situ(at, &["disk", command, "disk"]);
        assert!(small.code == 1 && small.stderr.contains("shorter than a page"), "{small:?}");
    }
}

/// A file with holes was formatted, and the store on it found the file system full when it came to them.
#[test]
fn a_file_gets_all_of_its_room_or_is_refused() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let held = || std::fs::metadata(at.join("disk")).unwrap().blocks() * 512;
    blank(at, 64 << 20);
    assert!(held() < 64 << 20);
    situ(at, &["disk", "format", "disk"]).done();
    assert!(held() >= 64 << 20, "{}", held());

    let space = rustix::fs::statvfs(at).unwrap();
    let whole = space.f_blocks * space.f_frsize;
    std::fs::remove_file(at.join("disk")).unwrap();
    let file = File::create(at.join("disk")).unwrap();
    if file.set_len(whole + (1 << 30)).is_err() {
        return skipped::skipped("the file system takes no file that is longer than itself");
    }
    let refused = situ(at, &["disk", "format", "disk", "--log", "16M"]);
    assert!(refused.code == 1 && refused.stderr.contains("has not given"), "{refused:?}");
    assert!(refused.stderr.contains("make room there, or the file shorter"), "{refused:?}");
    assert_eq!(held(), 0, "a refusal takes nothing");
    // Where there is something on it, that is what counts.
    file.write_all_at(b"?", 5000).unwrap();
    let refused = situ(at, &["disk", "format", "disk"]);
    assert!(refused.code == 1 && refused.stderr.contains("data at byte 5000"), "{refused:?}");
}

/// Before it is formatted and after, a device says whether it compresses, and what it holds.
#[test]
fn a_drive_that_compresses_is_shown_with_its_physical_bytes() {
    let Some(zram) = Zram::new(64 << 20) else { return };
    let (directory, device) = (tempfile::tempdir().unwrap(), zram.path.display().to_string());
    let at = directory.path();
    let name = device.strip_prefix("/dev/").unwrap();
    let blank = situ(at, &["disk", "show", &device]).done();
    assert!(blank.text().contains(&format!("zram ({name}), it compresses")), "{blank:?}");
    assert!(blank.text().contains("written    unknown"), "{blank:?}");
    assert!(blank.stderr.contains("situ disk format"), "it says that it is no Situ disk: {blank:?}");
    let shown = situ(at, &["disk", "show", &device, "--json"]).done().json();
    let drive = &shown["drive"];
    assert_eq!((drive["compresses"].as_str(), drive["kind"].as_str()), (Some("yes"), Some("zram")), "{shown}");
    assert_eq!((drive["logical_bytes"].as_u64(), drive["shared"].as_bool()), (Some(64 << 20), Some(false)), "{shown}");
    assert_eq!(drive["physical_used_bytes"].as_u64(), Some(0), "{shown}");
    assert!(drive["physical_bytes"].is_null() && drive["physical_written_bytes"].is_null(), "{shown}");
    assert!(shown["no_situ_disk"].is_string(), "{shown}");
    situ(at, &["disk", "format", &device]).done();
    std::fs::write(zram.sys("mem_limit"), (16 << 20).to_string()).unwrap();
    let shown = situ(at, &["disk", "show", &device, "--json"]).done().json();
    let drive = &shown["drive"];
    assert!(shown["id"].is_string() && drive["physical_used_bytes"].as_u64() > Some(0), "{shown}");
    let total = drive["physical_bytes"].as_u64().unwrap();
    assert!(total <= 16 << 20 && total > 15 << 20, "{shown}");
    assert!(situ(at, &["disk", "show", &device]).done().text().contains("free\n"));
}

/// A directory is on a drive, too.
#[test]
fn the_drive_below_a_directory_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "a", "1"]).done();
    let shown = situ(at, &["disk", "show", "situ-data", "--json"]).done().json();
    let drive = &shown["drive"];
    let known = ["yes", "no", "unknown"].map(Some);
    assert!(known.contains(&drive["compresses"].as_str()), "{shown}");
    assert!(drive["logical_bytes"].as_u64() > Some(0), "{shown}");
    assert!(drive["compresses"] == "yes" || drive["physical_used_bytes"].is_null(), "no figure is guessed: {shown}");
    let text = situ(at, &["disk", "show", "situ-data"]).done().text();
    assert!(["drive ", "logical ", "physical ", "written "].iter().all(|word| text.contains(word)), "{text}");

    let Some(zram) = Zram::new(64 << 20) else { return };
    let Some(mounted) = Mounted::ext4(&zram.path) else { return };
    let home = mounted.directory.path().join("store");
    situ(at, &["put", "--data", home.to_str().unwrap(), "a", "1"]).done();
    let shown = situ(at, &["disk", "show", home.to_str().unwrap(), "--json"]).done().json();
    assert_eq!(shown["drive"]["compresses"], "yes", "{shown}");
    assert!(shown["drive"]["physical_used_bytes"].as_u64() > Some(0), "{shown}");
}

/// The machine of the test may have drives, but none at this address.
#[test]
fn controllers_are_listed_and_a_wrong_address_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let listed = situ(at, &["disk", "show"]).done().text();
    assert!(listed.contains("no NVMe controllers on PCI") || listed.contains("state      "), "{listed}");
    situ(at, &["disk", "show", "--json"]).done();
    for command in ["bind", "unbind"] {
        let none = situ(at, &["disk", command, "ffffff:ff:1f.7"]);
        assert_eq!(none.code, 1, "{none:?}");
        assert!(none.stderr.contains("/sys/bus/pci/devices/ffffff:ff:1f.7 does not exist"), "{none:?}");
        assert!(none.stderr.contains("`situ disk show` lists"), "{none:?}");
        let wrong = situ(at, &["disk", command, "nvme0n1"]);
        assert!(wrong.code == 2 && wrong.stderr.contains("is not an address on PCI"), "{wrong:?}");
    }
    assert_eq!(situ(at, &["disk", "show", "--files"]).code, 2, "there are no files without a disk");
}

/// A loop device and the file below it are one disk: with a store on the one, the other was formatted.
#[test]
fn the_file_below_a_loop_device_is_not_formatted() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    blank(at, 64 << 20);
    let made = std::process::Command::new("losetup").args(["--find", "--show"]).arg(at.join("disk")).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        return skipped::skipped("losetup gives no loop device (root only)");
    };
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let detach = || std::process::Command::new("losetup").args(["--detach", &device]).status().unwrap();
    let run = std::panic::catch_unwind(|| {
        situ(at, &["disk", "format", &device]).done();
        situ(at, &["put", "a", "1"]).done();
        let serving = common::Serving::start(at, &["--fast-disk", &device]);
        for (disk, why) in [("disk", "lies below the loop device"), (&*device, "in use")] {
            let refused = situ(at, &["disk", "format", "--force", disk]);
            assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
        }
        drop(serving);
        assert_eq!(situ(at, &["get", "a"]).done().text().trim(), "1");
        situ(at, &["put", "b", "2"]).done();
    });
    detach();
    run.unwrap();
}

/// A fast disk from its preparation to its end: given to a store that has data, shown, verified, lost, drained.
#[test]
fn a_store_gets_a_fast_disk_and_gives_it_back() {
    for raw in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        situ(at, &["put", "a", "1"]).done();
        if raw {
            blank(at, 256 << 20);
            let refused = situ(at, &["disk", "add", "situ-data", "disk"]);
            assert!(refused.code == 1 && refused.stderr.contains("situ disk format"), "{refused:?}");
            situ(at, &["disk", "format", "disk"]).done();
        } else {
            let refused = situ(at, &["disk", "add", "situ-data", "disk"]);
            assert!(refused.code == 1 && refused.stderr.contains("there is nothing at"), "{refused:?}");
            std::fs::create_dir(at.join("disk")).unwrap();
        }
        let added = situ(at, &["disk", "add", "situ-data", "disk"]).done().text();
        assert!(added.contains("It does not open without it"), "{added}");
        situ(at, &["put", "b", "2"]).done();
        situ(at, &["compact"]).done();
        situ(at, &["put", "c", "3"]).done();
        assert_eq!(situ(at, &["get", "a"]).done().text().trim(), "1");
        if raw {
            let shown = situ(at, &["disk", "show", "disk", "--json"]).done().json();
            let (top, overhead) = (&shown["top"], shown["top_overhead_bytes"].as_u64().unwrap());
            let (used, files) = (top["used_bytes"].as_u64().unwrap(), top["file_bytes"].as_u64().unwrap());
            // One table, which takes a page, and is shorter.
            assert!(files > 0 && files < 4096 && used == 4096, "{shown}");
            assert_eq!(overhead, shown["overhead_bytes"].as_u64().unwrap() + used - files);
            assert!(situ(at, &["disk", "show", "disk"]).done().text().contains("of tables ("));
        }
        let text = situ(at, &["inspect"]).done().text();
        assert!(text.contains("Fast disk") && text.contains('▲'), "{text}");
        let report = situ(at, &["inspect", "--json"]).done().json();
        let log = report["log_files"][0]["name"].as_str().unwrap().strip_suffix(".log").unwrap().to_owned();
        situ(at, &["inspect", "--log", &log]).done();
        assert!(situ(at, &["verify"]).done().text().ends_with("all is sound\n"));
        // It is not there.
        std::fs::rename(at.join("disk"), at.join("elsewhere")).unwrap();
        let missing = situ(at, &["get", "a"]);
        assert!(missing.code != 0 && missing.stderr.contains("fast disk"), "{missing:?}");
        let shown = situ(at, &["inspect"]);
        assert!(shown.code == 4 && shown.text().contains("names the store's fast disk"), "{shown:?}");
        let plan = situ(at, &["repair", "--without-fast-disk", "--dry-run"]);
        assert!(plan.code == 4 && plan.text().contains("lost"), "{plan:?}");
        std::fs::rename(at.join("elsewhere"), at.join("disk")).unwrap();
        let drained = situ(at, &["disk", "drain", "situ-data"]).done().text();
        assert!(drained.contains("is home"), "{drained}");
        std::fs::rename(at.join("disk"), at.join("elsewhere")).unwrap();
        let scanned = situ(at, &["scan"]).done().text();
        assert!(["a", "b", "c"].iter().all(|key| scanned.contains(key)), "{scanned}");
        let again = situ(at, &["disk", "drain", "situ-data"]);
        assert!(again.code == 1 && again.stderr.contains("no fast disk"), "{again:?}");
    }
}

/// Options were all that anybody showed, and a small log area has room for fewer memtables than they allow.
#[test]
fn inspect_says_for_how_many_memtables_the_log_area_has_room() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::File::create(at.join("disk")).unwrap().set_len(300 << 20).unwrap();
    situ(at, &["disk", "format", "disk", "--log", "200M"]).done();
    situ(at, &["put", "a", "1"]).done();
    assert!(!situ(at, &["inspect"]).done().text().contains("log area"));
    assert_eq!(situ(at, &["inspect", "--json"]).done().json()["keyspaces"][0]["memtables_max"], 4);
    situ(at, &["disk", "add", "situ-data", "disk"]).done();
    assert_eq!(situ(at, &["inspect", "--json"]).done().json()["keyspaces"][0]["memtables_max"], 2);
    let text = situ(at, &["inspect"]).done().text();
    assert!(
        text.contains("with default options, the log area of the fast disk has room for the log of 2 memtables"),
        "{text}"
    );
}

/// Without DISKS the advice was a repair that gave up what lay on the disk, and that repair ran.
#[test]
fn a_store_that_has_lost_disks_is_led_back_to_its_fast_disk() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "a", "1"]).done();
    std::fs::create_dir(at.join("disk")).unwrap();
    situ(at, &["disk", "add", "situ-data", "disk"]).done();
    situ(at, &["put", "b", "2"]).done();
    std::fs::remove_file(at.join("situ-data/DISKS")).unwrap();
    for arguments in [&["get", "b"][..], &["put", "c", "3"], &["repair"]] {
        let refused = situ(at, arguments);
        let (keeps, loses) =
            (refused.stderr.find("situ repair --fast-disk"), refused.stderr.find("--without-fast-disk"));
        assert!(refused.code == 1 && keeps.is_some() && keeps < loses, "{refused:?}");
    }
    assert!(situ(at, &["inspect"]).text().contains("situ repair --fast-disk"));
    let refused = situ(at, &["disk", "add", "situ-data", "disk"]);
    assert!(refused.code == 1 && refused.stderr.contains("situ repair --fast-disk"), "{refused:?}");
    assert!(situ(at, &["repair", "--fast-disk", "disk"]).done().text().contains("Nothing is lost"));
    assert_eq!(situ(at, &["get", "b"]).done().text().trim(), "2");
    situ(at, &["put", "c", "3"]).done();
}

/// DISKS says where the fast disk is. When it cannot be read, the one repair that ran was the one that gives up the log.
#[test]
fn a_repair_is_told_where_the_fast_disk_is() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "a", "1"]).done();
    std::fs::create_dir(at.join("disk")).unwrap();
    situ(at, &["disk", "add", "situ-data", "disk"]).done();
    situ(at, &["put", "b", "2"]).done();
    std::fs::write(at.join("situ-data/DISKS"), b"rot").unwrap();
    let refused = situ(at, &["repair"]);
    assert!(refused.code == 1 && refused.stderr.contains("situ repair --fast-disk"), "{refused:?}");
    let both = situ(at, &["repair", "--fast-disk", "disk", "--without-fast-disk"]);
    assert_eq!(both.code, 2, "{both:?}");
    let repaired = situ(at, &["repair", "--fast-disk", "disk"]).done().text();
    assert!(repaired.contains("Nothing is lost"), "{repaired}");
    assert_eq!(situ(at, &["get", "b"]).done().text().trim(), "2");
}

/// A drain moved such files without a word, and what it could not read of them became zeros.
#[test]
fn a_drain_tells_what_a_repair_had_set_aside_on_the_disk() {
    for json in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        situ(at, &["put", "a", "1"]).done();
        std::fs::create_dir(at.join("disk")).unwrap();
        situ(at, &["disk", "add", "situ-data", "disk"]).done();
        std::fs::write(at.join("disk/000900.damaged"), b"what was left").unwrap();
        let drain: &[&str] =
            if json { &["disk", "drain", "situ-data", "--json"] } else { &["disk", "drain", "situ-data"] };
        let drained = situ(at, drain).done();
        if json {
            assert_eq!(drained.json()["set_aside"][0].as_str(), Some("000900.damaged"));
        } else {
            assert!(
                drained.text().contains("A repair had set 000900.damaged aside on the disk. It lies in situ-data now."),
                "{drained:?}"
            );
        }
        assert_eq!(std::fs::read(at.join("situ-data/000900.damaged")).unwrap(), b"what was left");
    }
}
