//! Writes the inputs that the real encoders make to `corpus/<target>/`, where the fuzzers begin.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let put = |target: &str, inputs: Vec<Vec<u8>>| -> std::io::Result<()> {
        fs::create_dir_all(root.join(target))?;
        for (number, input) in inputs.iter().enumerate() {
            fs::write(root.join(target).join(format!("real-{number}")), input)?;
        }
        Ok(())
    };
    for (name, _) in situ_engine::fuzzing::TARGETS {
        put(name, situ_engine::fuzzing::corpus(name))?;
    }
    for (name, _) in situ_accel::fuzzing::TARGETS {
        put(name, situ_accel::fuzzing::corpus(name))?;
    }
    for (name, _) in situ_hash::fuzzing::TARGETS {
        put(name, situ_hash::fuzzing::corpus(name))?;
    }
    for (name, _) in situ_cache::fuzzing::TARGETS {
        put(name, situ_cache::fuzzing::corpus(name))?;
    }
    put("backup", situ_backup::fuzzing::corpus())?;
    put("members", situ_tiers::fuzzing::corpus())?;
    put("memcached_answer", situ_client::fuzzing::corpus())?;
    put("memcached_request", situ_server::fuzzing::corpus())?;
    put("disk", situ_rawdisk::fuzzing::corpus())?;
    put("trace", situ_trace::fuzzing::corpus())?;
    put("values", situ_values::fuzzing::corpus())?;
    put("admin_channel", situ_server::fuzzing::admin_corpus())?;
    put("http_request", situ_server::fuzzing::http_corpus())?;
    put("node_message", situ_node::fuzzing::message_corpus())?;
    put("to_node", situ_node::fuzzing::to_node_corpus())?;
    put("to_host", situ_node::fuzzing::to_host_corpus())?;
    put("load", situ_cli::fuzzing::corpus())
}
