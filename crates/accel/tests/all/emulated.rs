//! The kernels, compiled as C++ and run on the processor, give the model's answers to the bit.
//!
//! Needs a C++ compiler (`c++`) and x86-64; elsewhere the tests say by name that they are skipped.

use crate::model_equals_merge::prepare;
use crate::skipped::skipped;
use crate::tasks;
use situ_accel::abi::{AnswerHeader, BlockReport};
use situ_accel::{Answer, DeviceTask, Layout, Params, emulated_steps, kernel_source, run_model};
use situ_compaction::testing::{MemoryHost, with_seeds};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const NEEDS: &str = "it needs a C++ compiler (c++) and x86-64";

/// The program, made once; `None` where it cannot be made.
fn program() -> Option<&'static PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            if !cfg!(target_arch = "x86_64") || Command::new("c++").arg("--version").output().is_err() {
                return None;
            }
            // In the build's own folder, so that `cargo clean` removes it.
            let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let kernels = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/kernels");
            std::fs::write(directory.join("kernels.inc"), kernel_source()).unwrap();
            std::fs::write(directory.join("steps.inc"), emulated_steps()).unwrap();
            let program = directory.join("emulate");
            let made = Command::new("c++")
                .args(["-std=c++17", "-O2", "-w", "-fno-strict-aliasing", "-I"])
                .arg(&directory)
                .arg(kernels.join("emulate.cpp"))
                .arg("-o")
                .arg(&program)
                .output()
                .unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Some(program)
        })
        .as_ref()
}

/// Runs the kernels over a task.
fn emulate(program: &PathBuf, task: &DeviceTask, data: &[u8], grid: u32) -> Answer {
    let layout = Layout::of(task);
    let mut front = vec![0; (layout.head_at + layout.head_bytes) as usize];
    layout.write_head(task, &mut front[layout.head_at as usize..]);
    front[..data.len()].copy_from_slice(data);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("in"), &front).unwrap();
    std::fs::write(path("params"), layout.params.placed(0)).unwrap();
    let ran = Command::new(program)
        .args([path("in"), path("out"), path("params")])
        .arg(layout.bytes.to_string())
        .arg(grid.to_string())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    answer_of(&std::fs::read(path("out")).unwrap(), &layout.params)
}

/// Takes the answer out of an arena.
fn answer_of(arena: &[u8], params: &Params) -> Answer {
    let part = |at: u64, bytes: usize| &arena[at as usize..][..bytes];
    let head = part(params.answer, AnswerHeader::BYTES);
    let header = AnswerHeader::take(&mut &*head).unwrap();
    if header.status != 0 {
        return Answer { header, ..Answer::default() };
    }
    let blocks = header.blocks as usize;
    let report = [
        head,
        part(params.reports, blocks * BlockReport::BYTES),
        part(params.hashes, header.hashes as usize * 8),
        part(params.out_keys, blocks * 2 * header.key_stride as usize),
    ];
    Answer::decode(&report.concat(), part(params.out_data, header.data_bytes as usize).to_vec()).unwrap()
}

fn assert_same(found: &Answer, wanted: &Answer) {
    if wanted.header.status != 0 {
        assert_eq!(found.header.status, wanted.header.status);
        return;
    }
    assert_eq!(found.header, wanted.header);
    if found.data != wanted.data {
        let at = found.data.iter().zip(&wanted.data).position(|(a, b)| a != b).unwrap();
        let block = wanted.reports.iter().rposition(|report| report.at as usize <= at).unwrap();
        let from = wanted.reports[block].at as usize;
        panic!(
            "block {block} differs at its byte {}:\nfound  {}\nwanted {}",
            at - from,
            found.block(block).escape_ascii(),
            wanted.block(block).escape_ascii()
        );
    }
    for (i, (found, wanted)) in found.reports.iter().zip(&wanted.reports).enumerate() {
        assert_eq!(found, wanted, "report {i}");
    }
    assert!(found.hashes == wanted.hashes, "hashes");
    assert!(found.keys == wanted.keys, "keys");
    assert!(found.data == wanted.data, "data");
}

#[test]
fn random_tasks_give_the_models_answer() {
    let Some(program) = program() else {
        skipped("random_tasks_give_the_models_answer", NEEDS);
        return;
    };
    with_seeds(20, |rng| {
        let host = MemoryHost::new();
        let (mut device, data) = prepare(&tasks::random(rng, &host, 800)).unwrap();
        let whole = run_model(&device, &data).unwrap();
        assert_same(&emulate(program, &device, &data, 1 + rng.below(3) as u32), &whole);
        // From some entry on, up to some length.
        device.rules.emit_from = rng.below(whole.header.entries_kept + 2);
        device.rules.emit_bytes_max = 1 + rng.below(whole.data.len() as u64 + 1);
        device.rules.shared_prefix_bytes = 0;
        let part = run_model(&device, &data).unwrap();
        assert_same(&emulate(program, &device, &data, 2), &part);
    });
}

#[test]
fn damage_gets_the_models_status() {
    let Some(program) = program() else {
        skipped("damage_gets_the_models_status", NEEDS);
        return;
    };
    with_seeds(20, |rng| {
        let host = MemoryHost::new();
        let (device, mut data) = prepare(&tasks::random(rng, &host, 300)).unwrap();
        if data.is_empty() {
            return;
        }
        let at = rng.index(data.len());
        data[at] ^= 1 << rng.below(8);
        assert_same(&emulate(program, &device, &data, 2), &run_model(&device, &data).unwrap());
    });
}
