//! Makes the verilated models of the unit and of the chip, where Verilator and a C++ compiler are.
//!
//! Without them the crate compiles to a model that is not there: `fpga_model` is the switch.

use std::path::{Path, PathBuf};
use std::process::Command;

const MODULES: [&str; 20] = [
    "crc32c", "fifo", "ring", "skid", "halve", "pair", "keyring", "fetch", "decoder", "merge", "visible", "encoder",
    "packer", "seal", "writer", "unit", "side", "lane", "port", "chip",
];

/// Modules with a model of their own, its name, and their parameters. The chip has a pair for lock-step, and a lane more.
const MODELS: [(&str, &str, &[&str]); 4] = [
    ("unit", "unit", &[]),
    ("unit", "unit2", &["-GWAYS=2", "-GWBITS=1"]),
    ("unit", "unit16", &["-GBYTES=16"]),
    ("chip", "chip", &["-GLANES=3", "-GNBITS=3", "-GFLIPS=1"]),
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(fpga_model)");
    println!("cargo::rerun-if-env-changed=VERILATOR");
    println!("cargo::rerun-if-env-changed=SITU_FPGA_WITH_COVERAGE");
    println!("cargo::rerun-if-env-changed=PATH");
    let here = PathBuf::from(env("CARGO_MANIFEST_DIR"));
    let rtl = here.join("../../fpga/rtl");
    println!("cargo::rerun-if-changed={}", rtl.display());
    println!("cargo::rerun-if-changed={}", here.join("model").display());
    if env("CARGO_FEATURE_SIMULATED").is_empty() {
        println!("cargo::rustc-env=SITU_FPGA_MISSING=the feature `simulated` is not built in");
        return;
    }
    match build(&here, &rtl) {
        Ok(()) => println!("cargo::rustc-cfg=fpga_model"),
        // The tests say the same by name.
        Err(why) => println!("cargo::rustc-env=SITU_FPGA_MISSING={}", why.lines().next().unwrap_or_default()),
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Returns where Verilator's own C++ files are.
fn verilator_include(verilator: &str) -> Result<PathBuf, String> {
    let found = Command::new(verilator).args(["--getenv", "VERILATOR_ROOT"]).output();
    let found = found.map_err(|_| format!("{verilator} is not there"))?;
    let version = Command::new(verilator).arg("--version").output().map_err(|error| error.to_string())?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let major = version.split([' ', '.']).nth(1).and_then(|number| number.parse::<u32>().ok());
    if major.is_none_or(|major| major < 5) {
        return Err(format!("{} is older than version 5", version.trim()));
    }
    let root = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let include = PathBuf::from(root).join("include");
    if include.join("verilated.cpp").exists() { Ok(include) } else { Err(format!("{verilator} has no include files")) }
}

fn build(here: &Path, rtl: &Path) -> Result<(), String> {
    let verilator = Some(env("VERILATOR")).filter(|name| !name.is_empty()).unwrap_or("verilator".to_owned());
    let include = verilator_include(&verilator)?;
    let out = PathBuf::from(env("OUT_DIR")).join("verilated");
    // What an older set of modules left would be compiled, too.
    let _ = std::fs::remove_dir_all(&out);
    let coverage = !env("SITU_FPGA_WITH_COVERAGE").is_empty();
    let mut sources = Vec::new();
    for (module, name, parameters) in MODELS {
        let out = out.join(name);
        verilate(&verilator, module, name, parameters, coverage, rtl, &out)?;
        let files = std::fs::read_dir(&out).map_err(|error| error.to_string())?;
        sources.extend(files.filter_map(|file| Some(file.ok()?.path())));
    }
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    sources.sort();
    sources.push(include.join("verilated.cpp"));
    sources.extend(["model/model.cpp", "model/chip.cpp"].map(|path| here.join(path)));
    sources.extend(Some(include.join("verilated_threads.cpp")).filter(|path| path.exists()));
    if coverage {
        sources.push(include.join("verilated_cov.cpp"));
    }
    let mut compiler = cc::Build::new();
    compiler.cpp(true).std("c++17").warnings(false).opt_level(2).debug(false).flag_if_supported("-pthread");
    compiler.includes([&include, &include.join("vltstd"), &here.join("model")]);
    compiler.includes(MODELS.map(|(_, name, _)| out.join(name)));
    compiler.define("VM_COVERAGE", if coverage { "1" } else { "0" });
    compiler.define("VM_TRACE", "0").define("VL_TIME_CONTEXT", None);
    compiler.files(sources);
    let program = compiler.try_get_compiler().map_err(|error| format!("no C++ compiler: {error}"))?;
    if program.to_command().arg("--version").output().is_err() {
        return Err(format!("{} is not there", program.path().display()));
    }
    compiler.compile("situ_fpga_model");
    Ok(())
}

/// Writes the C++ sources of a module into `out`.
fn verilate(
    verilator: &str,
    module: &str,
    name: &str,
    parameters: &[&str],
    coverage: bool,
    rtl: &Path,
    out: &Path,
) -> Result<(), String> {
    std::fs::create_dir_all(out).map_err(|error| error.to_string())?;
    let mut command = Command::new(verilator);
    command.args([
        "--cc",
        "--assert",
        "-O3",
        "--x-assign",
        "unique",
        "--x-initial",
        "unique",
        "-Wno-fatal",
        "-Wno-lint",
    ]);
    command.args(["--top-module", module, "--prefix", &format!("V{name}"), "--Mdir"]).arg(out).args(parameters);
    if coverage {
        command.args(["--coverage-user", "--coverage-line"]);
    }
    command.args(MODULES.map(|module| rtl.join(format!("{module}.sv"))));
    let made = command.output().map_err(|error| format!("{verilator}: {error}"))?;
    // Then the circuit is wrong: nothing to skip.
    assert!(made.status.success(), "verilator refuses the circuit: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}
