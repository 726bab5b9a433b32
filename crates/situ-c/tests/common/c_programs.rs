//! Programs in C that are compiled against a library of this workspace. Both C libraries are tested with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A C library: its package, its name and its directory in the source.
pub(crate) struct Library {
    pub(crate) package: &'static str,
    pub(crate) name: &'static str,
    pub(crate) home: &'static str,
}

/// Runs a command, which must succeed, and returns what it has said.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

impl Library {
    /// Builds the libraries as Cargo has built this test, and returns their directory. Cargo builds them for no test by
    /// itself. `SITU_LIBRARIES` says that `make test` has built them.
    pub(crate) fn build(&self) -> PathBuf {
        // This program is in `<target>/debug/deps`.
        let directory = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        if std::env::var_os("SITU_LIBRARIES").is_some() {
            return directory;
        }
        let profile = if directory.ends_with("debug") { "test" } else { "release" };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--profile", profile, "-p", self.package, "--target-dir"]);
        run(cargo.arg(directory.parent().unwrap()).current_dir(self.home));
        directory
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(self.home).join(name)
    }

    fn compiler(&self) -> Command {
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        compiler
    }

    /// Compiles a source in `examples` and returns the program.
    fn compile(&self, source: &str, into: &Path, link: impl IntoIterator<Item = impl AsRef<OsStr>>) -> PathBuf {
        let program = into.join(Path::new(source).file_stem().unwrap());
        let mut compiler = self.compiler();
        compiler.arg("-o").arg(&program).arg(self.file("examples").join(source)).args(link);
        run(&mut compiler);
        program
    }

    /// Compiles a source with the shared library.
    pub(crate) fn compile_shared(&self, source: &str, into: &Path) -> PathBuf {
        let (include, library) = (self.file("include"), self.build());
        let link = ["-I", include.to_str().unwrap(), "-L", library.to_str().unwrap(), &format!("-l{}", self.name)];
        self.compile(source, into, link)
    }

    /// Compiles a source with the static library, and the libraries of the system that the template for pkg-config
    /// names.
    pub(crate) fn compile_static(&self, source: &str, into: &Path) -> PathBuf {
        let (include, library) = (self.file("include"), self.build().join(format!("lib{}.a", self.name)));
        let template = std::fs::read_to_string(self.file(&format!("{}.pc.in", self.name))).unwrap();
        let system = template.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
        let link = ["-I", include.to_str().unwrap(), library.to_str().unwrap()].into_iter().chain(system.split(' '));
        self.compile(source, into, link)
    }

    /// Installs header, library and the template for pkg-config, asks pkg-config, and compiles a source by its answer.
    /// Returns false if pkg-config is not there.
    pub(crate) fn compile_by_pkg_config(&self, source: &str) -> bool {
        if Command::new("pkg-config").arg("--version").output().is_err() {
            return false;
        }
        let Library { name, .. } = self;
        let prefix = tempfile::tempdir().unwrap();
        let template = std::fs::read_to_string(self.file(&format!("{name}.pc.in"))).unwrap();
        let file = template.replace("@PREFIX@", prefix.path().to_str().unwrap()).replace("@VERSION@", "1.2.3");
        std::fs::create_dir_all(prefix.path().join("include")).unwrap();
        std::fs::create_dir_all(prefix.path().join("lib/pkgconfig")).unwrap();
        std::fs::write(prefix.path().join(format!("lib/pkgconfig/{name}.pc")), file).unwrap();
        let (header, library) = (format!("include/{name}.h"), format!("lib{name}.so"));
        std::fs::copy(self.file(&header), prefix.path().join(&header)).unwrap();
        std::fs::copy(self.build().join(&library), prefix.path().join("lib").join(&library)).unwrap();
        let ask = |arguments: &[&str]| {
            let mut command = Command::new("pkg-config");
            run(command.args(arguments).arg(name).env("PKG_CONFIG_PATH", prefix.path().join("lib/pkgconfig")))
        };
        assert_eq!(ask(&["--modversion"]).trim(), "1.2.3");
        let flags = ask(&["--cflags", "--libs"]);
        assert!(self.compile(source, prefix.path(), flags.split_whitespace()).exists());
        true
    }

    /// Compiles one line of C++ that includes the header. Returns false if there is no C++ compiler.
    pub(crate) fn header_is_cpp(&self, main: &str) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("empty.cc");
        std::fs::write(&source, format!("#include <{}.h>\nint main() {{ {main} }}\n", self.name)).unwrap();
        let mut compiler = Command::new("c++");
        compiler.arg("-fsyntax-only").arg("-I").arg(self.file("include")).arg(&source);
        match compiler.output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => return false,
        }
        true
    }
}
