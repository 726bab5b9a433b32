//! `trace`: the requests that a server gets, into a file.
//!
//! The command runs in the server that has the store open ([`administrator`](crate::administrator)). A trace that fails
//! leaves no file.

use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::options::TraceOptions;
use crate::output::Output;
use crate::text;
use serde::Serialize;
use std::fs::{File, remove_file};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// The size of one write.
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Debug, Serialize)]
struct Summary {
    file: String,
    requests: u64,
    lost: u64,
    bytes: u64,
    seconds: f64,
}

pub(crate) fn trace(options: &TraceOptions, out: &mut Output) -> Outcome {
    let Some(tracer) = out.tracer() else {
        let home = options.directory.home();
        let what = format!("cannot record a trace of {}", home.path().display());
        let why = "no server has this store open and takes commands";
        let cure = "name the directory of an ordered store that a `situ serve` of this machine serves";
        return Err(Failure::of_server(what, why, home.path()).cure(cure));
    };
    let path = &options.output;
    let failed = |error: &io::Error| Failure::new(format!("cannot record a trace into {}", path.display()), error);
    // It may have keys, which the server's user alone may read.
    let file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(|error| failed(&error))?;
    let buffered = BufWriter::with_capacity(BUFFER_BYTES, &file);
    let duration = Duration::from_secs(options.seconds.into());
    let goes_on = || out.check_client().is_ok();
    let recorded = tracer.record(buffered, options.keys.into(), duration, options.max_size, goes_on);
    let recorded = recorded.and_then(|recorded| file.sync_all().map(|()| recorded)).map_err(|error| {
        // The error counts, and not that a file of no use is left.
        _ = remove_file(path);
        failed(&error)
    })?;
    let summary = Summary {
        file: path.display().to_string(),
        requests: recorded.requests,
        lost: recorded.lost,
        bytes: recorded.bytes,
        seconds: recorded.duration.as_secs_f64(),
    };
    if recorded.lost > 0 {
        out.warn(&format!(
            "{} came faster than the disk took them, and are not in the trace",
            text::plural(recorded.lost, "request")
        ));
    }
    if out.is_json() {
        out.object(&summary)?;
    } else {
        let requests = text::plural(summary.requests, "request");
        let bytes = text::bytes(summary.bytes);
        out.line(format!("recorded {requests} in {:.1} s, {bytes}, into {}", summary.seconds, summary.file))?;
    }
    DONE
}
