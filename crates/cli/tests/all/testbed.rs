//! A store on the two disks that `scripts/testbed.sh` makes: the session of the guide, a server that is killed, many testbeds at a
//! time; and that nothing is left of any of them.

use crate::common::{Serving, program, situ};
use crate::skipped;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Who calls the script.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Caller {
    Whoever,
    /// Somebody who is not root, as far as the script can tell: the fast disk is a file then.
    NotRoot,
}

/// A directory for one testbed, which is taken away at the end, however the test ends.
struct Place {
    root: tempfile::TempDir,
    caller: Caller,
    mib: u64,
}

/// The disks of a testbed.
#[derive(Debug)]
struct Disks {
    fast: PathBuf,
    kind: String,
    capacity: PathBuf,
}

/// What the script needs, if it is there; otherwise it is said, by the test's name, that it does not run.
fn has_tools() -> bool {
    let found = Command::new("bash").args(["-c", "command -v realpath cat cut dd rm rmdir >/dev/null"]).status();
    let missing = match found {
        Ok(status) if status.success() => return true,
        Ok(_) => "one of realpath, cat, cut, dd, rm, rmdir",
        Err(_) => "bash",
    };
    skipped::skipped(format_args!("scripts/testbed.sh needs {missing}"));
    false
}

impl Place {
    fn new(caller: Caller) -> Place {
        static PLACES: AtomicU32 = AtomicU32::new(0);
        let root = tempfile::tempdir().unwrap();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        std::os::unix::fs::symlink(repository.join("scripts"), root.path().join("scripts")).unwrap();
        fs::create_dir(root.path().join("bin")).unwrap();
        if caller == Caller::NotRoot {
            let id = root.path().join("bin/id");
            fs::write(&id, "#!/bin/sh\necho 1000\n").unwrap();
            Command::new("chmod").arg("+x").arg(&id).status().unwrap();
        }
        // A size of its own, by which a disk that was left is known. Less than the guide's has no room for a table of 64 MiB, which
        // every one could become, beside that for flushes.
        let mib =
            128 + u64::from(std::process::id() % 12) * 16 + u64::from(PLACES.fetch_add(1, Ordering::Relaxed) % 16);
        Place { root, caller, mib }
    }

    fn at(&self) -> &Path {
        self.root.path()
    }

    fn testbed(&self) -> PathBuf {
        self.at().join("testbed")
    }

    /// Runs a script where the guide says `situ` and `scripts/testbed.sh`.
    fn bash(&self, script: &str) -> Output {
        let situ = Path::new(program(self.at()).get_program()).parent().unwrap().to_owned();
        let paths = [self.at().join("bin"), situ];
        let path = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths(paths.into_iter().chain(std::env::split_paths(&path))).unwrap();
        Command::new("bash").args(["-c", script]).current_dir(self.at()).env("PATH", path).output().unwrap()
    }

    /// Runs a verb of the script.
    fn verb(&self, verb: &str) -> Output {
        self.bash(&format!("scripts/testbed.sh {verb}"))
    }

    fn up(&self) -> Disks {
        let made = self.verb(&format!("up testbed {}", self.mib));
        assert!(made.status.success(), "{made:?}");
        let said = String::from_utf8(made.stdout).unwrap();
        let value = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_else(|| panic!("no {name} in {said}")).to_owned()
        };
        let disks = Disks { fast: value("FAST").into(), kind: value("FAST_KIND"), capacity: value("CAPACITY").into() };
        assert!(self.caller == Caller::Whoever || disks.kind == "file", "{disks:?}");
        disks
    }

    fn down(&self) {
        let gone = self.verb("down testbed");
        assert!(gone.status.success(), "{gone:?}");
        self.nothing_is_left();
    }

    /// No file, no mount, no device of this testbed.
    fn nothing_is_left(&self) {
        assert!(!self.testbed().exists(), "{:?}", fs::read_dir(self.testbed()).map(Iterator::count));
        let here = self.at().to_str().unwrap();
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(here), "{mounts}");
        for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let path = device.path();
            let name = device.file_name().to_string_lossy().into_owned();
            let told = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default().trim().to_owned();
            assert!(!told("loop/backing_file").starts_with(here), "{name} is left");
            let is_ours = name.starts_with("zram") && told("disksize") == (self.mib << 20).to_string();
            assert!(!is_ours, "{name} is left");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.testbed().join("testbed.env").exists() {
            let gone = self.verb("down testbed");
            assert!(gone.status.success() || std::thread::panicking(), "{gone:?}");
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_session_in_the_guide_is_what_happens() {
    if !has_tools() {
        return;
    }
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/two-disks.md");
    let guide = fs::read_to_string(guide).unwrap();
    let session = guide.split("```sh\n").find_map(|block| {
        let block = block.split("```").next()?;
        block.contains("scripts/testbed.sh up").then(|| block.to_owned())
    });
    let session = session.expect("the guide has a session on a testbed");
    assert!(session.contains("testbed 128)"), "{session}");
    for caller in [Caller::Whoever, Caller::NotRoot] {
        let place = Place::new(caller);
        let ran = place.bash(&format!("set -eu\n{}", session.replace(" 128)", &format!(" {})", place.mib))));
        assert!(ran.status.success(), "{caller:?}: {ran:?}");
        let said = String::from_utf8(ran.stdout).unwrap();
        for expected in ["some words\n", "▲", "TopFS", "all is sound", "is home"] {
            assert!(said.contains(expected), "{expected:?} is not in {said}");
        }
        place.nothing_is_left();
    }
}

/// All of a store's life on both disks, with a server that is killed in the middle.
#[test]
fn a_store_on_a_testbed_survives_its_server_and_comes_home() {
    if !has_tools() {
        return;
    }
    for caller in [Caller::Whoever, Caller::NotRoot] {
        let place = Place::new(caller);
        let (at, disks) = (place.at(), place.up());
        let (fast, store) = (text(&disks.fast), disks.capacity.join("store"));
        let store = text(&store);
        situ(at, &["disk", "format", fast]).done();
        let serve = || Serving::start(at, &["--data", store, "--fast-disk", fast, "--sync"]);
        let server = serve();
        let sets: String = (0..500).map(|n| format!("set key{n} 0 0 5\r\n{n:05}\r\n")).collect();
        assert_eq!(server.ask(&format!("{sets}quit\r\n")).matches("STORED").count(), 500);
        // SIGKILL.
        drop(server);
        let item =
            |n: u32| situ(at, &["get", "--data", store, "--keyspace", "items", &format!("key{n}")]).done().text();
        assert_eq!((item(0), item(499)), ("00000\n".to_owned(), "00499\n".to_owned()));
        let shown = situ(at, &["disk", "show", fast, "--json"]).done().json();
        assert!(shown["log"]["used_bytes"].as_u64() > Some(0), "the log is on the fast disk: {shown}");

        let mut server = serve();
        assert!(server.ask("get key250\r\nquit\r\n").contains("\r\n00250\r\n"));
        // Beside the server, too.
        assert_eq!(item(250), "00250\n");
        assert!(situ(at, &["disk", "check", fast]).done().text().contains("all is sound"));
        server.signal(rustix::process::Signal::INT);
        assert_eq!(server.wait(), Some(0));
        situ(at, &["disk", "drain", store]).done();
        assert_eq!(item(499), "00499\n");
        assert!(situ(at, &["verify", store]).done().text().contains("all is sound"));
        let shown = situ(at, &["disk", "show", fast, "--json"]).done().json();
        assert_eq!(shown["log"]["used_bytes"].as_u64(), Some(0), "{shown}");
        place.down();
    }
}

#[test]
fn testbeds_at_the_same_time_do_not_disturb_each_other() {
    if !has_tools() {
        return;
    }
    let places: Vec<Place> = (0..4).map(|_| Place::new(Caller::Whoever)).collect();
    let up: Vec<Disks> = std::thread::scope(|scope| {
        let ups: Vec<_> = places.iter().map(|place| scope.spawn(|| place.up())).collect();
        ups.into_iter().map(|up| up.join().unwrap()).collect()
    });
    for (n, disks) in up.iter().enumerate() {
        assert!(up[..n].iter().all(|other| other.fast != disks.fast && other.capacity != disks.capacity), "{up:?}");
        situ(places[n].at(), &["disk", "format", text(&disks.fast)]).done();
    }
    // Half of them go, and others come.
    std::thread::scope(|scope| places[..2].iter().for_each(|place| drop(scope.spawn(|| place.down()))));
    let later = Place::new(Caller::Whoever);
    later.up();
    for n in 2..4 {
        assert!(situ(places[n].at(), &["disk", "check", text(&up[n].fast)]).done().text().contains("all is sound"));
    }
    later.down();
    places[2..].iter().for_each(Place::down);
    places.iter().for_each(Place::nothing_is_left);
}

/// The zram device of an `up` that failed behind it stayed, as did what a `slow` that failed had made.
#[test]
fn a_step_that_fails_leaves_nothing() {
    if !has_tools() {
        return;
    }
    for caller in [Caller::Whoever, Caller::NotRoot] {
        // What was made cannot be noted.
        let place = Place::new(caller);
        fs::create_dir(place.testbed()).unwrap();
        std::os::unix::fs::symlink("/nonexistent/testbed", place.testbed().join("testbed.env")).unwrap();
        let failed = place.verb(&format!("up testbed {}", place.mib));
        assert!(!failed.status.success() && failed.stdout.is_empty(), "{failed:?}");
        fs::remove_dir(place.testbed()).expect("it was there, and is empty");
        place.nothing_is_left();
    }
    // The file of the fast disk cannot be that long.
    let place = Place::new(Caller::NotRoot);
    let failed = place.bash("ulimit -f 1000; scripts/testbed.sh up testbed 64");
    assert!(!failed.status.success(), "{failed:?}");
    place.nothing_is_left();

    let place = Place::new(Caller::Whoever);
    let disks = place.up();
    let twice = place.verb("up testbed 64");
    assert!(!twice.status.success() && String::from_utf8_lossy(&twice.stderr).contains("already"), "{twice:?}");
    assert!(disks.fast.exists() && disks.capacity.exists());
    // Whether these can be done depends on the machine, and the next ones on them.
    place.verb("slow testbed 1 100");
    place.verb("mount testbed");
    if disks.kind == "zram" {
        place.verb("unmount testbed");
        // What is in use stays, and can be taken away later.
        let held = File::open(&disks.fast).unwrap();
        let refused = place.verb("down testbed");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("is in use"), "{refused:?}");
        drop(held);
    }
    place.down();
    // A `slow` whose tools fail.
    let place = Place::new(Caller::Whoever);
    place.up();
    fs::write(place.at().join("bin/mkfs.ext4"), "#!/bin/sh\nexit 1\n").unwrap();
    Command::new("chmod").arg("+x").arg(place.at().join("bin/mkfs.ext4")).status().unwrap();
    assert!(!place.verb("slow testbed 1 100").status.success());
    place.down();
}
