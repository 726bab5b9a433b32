//! The library as a C program sees it: `examples/tour.c`, compiled against the header and linked with both libraries.

#[path = "../../../server/tests/all/memcached/mod.rs"]
#[allow(dead_code, reason = "these tests need no version and no exchange of bytes")]
mod memcached;
#[path = "../../../device/tests/common/skipped.rs"]
mod skipped;

use memcached::Memcached;
use situ_server::{CacheEngine, Server, ServerOptions};
use skipped::skipped;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a command, which must succeed, and returns what it has said.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Builds the libraries as Cargo has built this test, and returns their directory. Cargo builds them for no test by
/// itself.
fn libraries() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        // This program is in `<target>/debug/deps`.
        let directory = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let profile = if directory.ends_with("debug") { "test" } else { "release" };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--profile", profile, "-p", "situ-client-c", "--target-dir"]);
        run(cargo.arg(directory.parent().unwrap()).current_dir(HERE));
        directory
    })
}

fn compiler() -> Command {
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compiler.arg("-I").arg(Path::new(HERE).join("include"));
    compiler
}

/// Compiles the example and returns the program.
fn tour(directory: &Path, link: impl IntoIterator<Item = impl AsRef<OsStr>>) -> PathBuf {
    let program = directory.join("tour");
    let mut compiler = compiler();
    compiler.arg("-o").arg(&program).arg(Path::new(HERE).join("examples/tour.c")).args(link);
    run(&mut compiler);
    program
}

/// Takes the tour over Situ's server by each transport, and over memcached where it is installed.
fn take(program: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket").to_str().unwrap().to_owned();
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        unix_socket: Some(socket.clone().into()),
        threads: 1,
        ..ServerOptions::default()
    };
    let engine = CacheEngine::new(&situ::cache::Options::of_memory(64 << 20)).unwrap();
    let server = Server::start(&options, Arc::new(engine)).unwrap();
    let tour = |arguments: &[&str], transport: &str| {
        let said = run(Command::new(program).args(arguments).env("LD_LIBRARY_PATH", libraries()));
        assert!(said.contains("> hello, world\n") && said.ends_with("done\n"), "{said}");
        assert!(said.contains(&format!(" is reached over {transport}\n")), "{said}");
    };
    tour(&[&server.addresses()[0].to_string()], "TCP");
    tour(&[&socket], "shared memory");
    tour(&[&format!("unix:{socket}"), "shared-memory"], "shared memory");
    tour(&[&socket, "socket"], "Unix socket");
    server.stop(Duration::from_secs(10));
    let several: Option<Vec<Memcached>> = (0..2).map(|_| Memcached::start()).collect();
    match several {
        Some(several) => {
            tour(&[&several[0].address.to_string()], "TCP");
            tour(&[&format!("{}, {}", several[0].address, several[1].address)], "TCP");
        }
        None => skipped("memcached is not installed"),
    }
}

#[test]
fn a_program_with_the_shared_library_takes_the_tour() {
    let directory = tempfile::tempdir().unwrap();
    let library = libraries().to_str().unwrap();
    take(&tour(directory.path(), ["-L", library, "-lsitu_client"]));
}

#[test]
fn a_program_with_the_static_library_takes_the_tour() {
    let directory = tempfile::tempdir().unwrap();
    let library = libraries().join("libsitu_client.a");
    let system = private_libraries();
    let link = [library.to_str().unwrap()].into_iter().chain(system.split(' ')).map(str::to_owned);
    take(&tour(directory.path(), link));
}

/// Returns the libraries of the system that the static library needs, as the template of pkg-config names them.
fn private_libraries() -> String {
    let template = std::fs::read_to_string(Path::new(HERE).join("situ_client.pc.in")).unwrap();
    let line = template.lines().find_map(|line| line.strip_prefix("Libs.private: "));
    line.unwrap().to_owned()
}

/// The template becomes a file with which pkg-config finds an installed library.
#[test]
fn pkg_config_names_header_and_library() {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return skipped("pkg-config is not installed");
    }
    let prefix = tempfile::tempdir().unwrap();
    let template = std::fs::read_to_string(Path::new(HERE).join("situ_client.pc.in")).unwrap();
    let file = template.replace("@PREFIX@", prefix.path().to_str().unwrap()).replace("@VERSION@", "1.2.3");
    std::fs::create_dir_all(prefix.path().join("include")).unwrap();
    std::fs::create_dir_all(prefix.path().join("lib/pkgconfig")).unwrap();
    std::fs::write(prefix.path().join("lib/pkgconfig/situ_client.pc"), file).unwrap();
    std::fs::copy(Path::new(HERE).join("include/situ.h"), prefix.path().join("include/situ.h")).unwrap();
    std::fs::copy(libraries().join("libsitu_client.so"), prefix.path().join("lib/libsitu_client.so")).unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        run(command.args(arguments).arg("situ_client").env("PKG_CONFIG_PATH", prefix.path().join("lib/pkgconfig")))
    };
    assert_eq!(ask(&["--modversion"]).trim(), "1.2.3");
    let flags = ask(&["--cflags", "--libs"]);
    let program = prefix.path().join("tour");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.arg("-o").arg(&program).arg(Path::new(HERE).join("examples/tour.c")).args(flags.split_whitespace());
    run(&mut compiler);
    assert!(program.exists());
}

/// C++ programs include the header, too, and it names no symbol that the library lacks.
#[test]
fn the_header_is_cpp_and_names_the_symbols_of_the_library() {
    let header = std::fs::read_to_string(Path::new(HERE).join("include/situ.h")).unwrap();
    let source = std::fs::read_to_string(Path::new(HERE).join("src/lib.rs")).unwrap();
    // A declaration begins in the first column.
    let declares = |name: &str| header.lines().any(|line| !line.starts_with([' ', '/', '*']) && line.contains(name));
    let mut exported = 0;
    for (before, _) in source.match_indices("#[unsafe(no_mangle)]") {
        let name = source[before..].split(" fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap();
        assert!(declares(&format!("{name}(")), "the header lacks {name}");
        exported += 1;
    }
    let declared = header.lines().filter(|line| {
        let is_function = |name: &str| line.starts_with(name) && line.contains("situ_") && line.contains('(');
        ["int ", "void ", "const char *", "situ_client *"].into_iter().any(is_function)
    });
    assert_eq!(declared.count(), exported, "the header declares what the library does not have");
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("empty.cc");
    std::fs::write(&source, "#include <situ.h>\nint main() { return situ_error()[0]; }\n").unwrap();
    let mut compiler = Command::new("c++");
    compiler.arg("-fsyntax-only").arg("-I").arg(Path::new(HERE).join("include")).arg(&source);
    match compiler.output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => skipped("there is no C++ compiler"),
    }
}
