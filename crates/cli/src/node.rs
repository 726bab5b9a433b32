//! `node`: files of stores for other machines.
//!
//! 1. Signals are caught, the place is opened, the addresses are taken; each failure says what to do.
//! 2. Where the node can be reached is printed, with a command to try.
//! 3. SIGTERM or SIGINT end the node: what clients have asked for is answered, for [`STOP_PATIENCE`] at most. Tasks are
//!    cancelled: their hosts do them again.

use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::message::Message;
use crate::options::NodeCommand;
use crate::output::Output;
use crate::store::{node_options, read_key};
use crate::text;
use serde::Serialize;
use situ::offload::TaskRunner;
use situ_accel::DeviceLanes;
use situ_base::Env;
use situ_device as device;
use situ_node::{Daemon, DaemonOptions, Executor, ExecutorOptions, Place, Secret, ServerTls, Storage, TaskService};
use situ_rawdisk::{RawOptions, RawVolume};
use situ_server::{CaughtSignals, StopSignal, item_filter, raise_limit};
use situ_storage::Volume;
use std::io;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest time for clients' requests to end.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn node(options: &NodeCommand, out: &mut Output) -> Outcome {
    let mut signals = CaughtSignals::catch().map_err(|error| Failure::new("cannot catch signals", error))?;
    let failed = |error: situ_storage::Error| cannot_start(&error, options);
    let env = Env::system();
    // Before the daemon begins: it divides the limit of open files among its clients.
    raise_limit();
    let executor = Arc::new(Executor::new(&env, executor_options(&env, options).map_err(failed)?));
    let daemon = Daemon::start(&env, daemon_options(options, &executor).map_err(failed)?).map_err(failed)?;
    let place = options.place.as_ref().map(|place| std::path::absolute(place).unwrap_or_else(|_| place.clone()));
    let listening = Listening {
        event: "listening",
        place: place.map_or_else(|| "none: it only computes".to_owned(), |place| place.display().to_string()),
        addresses: daemon.places().iter().map(ToString::to_string).collect(),
        secret: options.secret_file.is_some(),
        tls: options.tls_cert.is_some(),
        computes_only: options.compute_only,
        process: std::process::id(),
    };
    let shown = if out.is_json() { out.object(&listening) } else { out.bytes(listening.banner().as_bytes()) };
    // A reader that went away is no reason to stop serving.
    let _ = shown.and_then(|()| out.finish());
    let signal = match signals.wait(|| {}) {
        StopSignal::Interrupt => "SIGINT",
        StopSignal::Terminate => "SIGTERM",
    };
    log(out, &format!("{signal}: the node answers the requests that it has, and stops"));
    let has_answered = daemon.stop(STOP_PATIENCE);
    executor.close();
    match has_answered {
        true => log(out, "stopped"),
        false => log(out, "stopped; requests that the disk did not finish in time were given up"),
    }
    DONE
}

fn executor_options(env: &Env, options: &NodeCommand) -> situ_storage::Result<ExecutorOptions> {
    let mut made = ExecutorOptions {
        shared: options.shared.clone(),
        nodes: options.storage_node.iter().map(|place| place.parse()).collect::<Result<_, _>>()?,
        node_options: node_options(&options.keys)?,
        // The stores of `situ serve` have it.
        filters: vec![item_filter()],
        ..ExecutorOptions::new(env)
    };
    let device = options.accelerator.device().map_err(|error| situ_storage::Error::Invalid(error.to_string()))?;
    made.accelerator = device.map(|device| Arc::new(DeviceLanes::new(env.clone(), device)) as Arc<dyn TaskRunner>);
    if let Some(tasks) = options.tasks {
        (made.threads, made.waiting_max) = (tasks as usize, tasks as usize);
    }
    Ok(made)
}

fn daemon_options(options: &NodeCommand, executor: &Arc<Executor>) -> situ_storage::Result<DaemonOptions> {
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(certificate), Some(key)) => Some(ServerTls::read(certificate, key)?),
        _ => None,
    };
    Ok(DaemonOptions {
        listen: options.listen.iter().map(|place| place_of(place)).collect::<Result<_, _>>()?,
        secret: read_key(options.secret_file.as_deref(), "--secret-file", Secret::read)?,
        tls,
        storage: options.place.as_deref().map(storage_at).transpose()?,
        services: vec![Arc::new(TaskService::new(Arc::clone(executor)))],
        stores_max: options.store_limit as usize,
        connections_max: options.max_connections as usize,
        threads: options.threads as usize,
        lease_term: Duration::from_millis(options.lease_ms),
        from: format!("situ node {}", env!("CARGO_PKG_VERSION")),
        ..DaemonOptions::default()
    })
}

/// Parses the place to listen at. Port 0, which no client can connect to, is any free port.
fn place_of(text: &str) -> situ_storage::Result<Place> {
    match (text.strip_suffix(":0"), text.starts_with("unix:")) {
        (Some(host), false) => match host.parse()? {
            Place::Tcp { host, .. } => Ok(Place::Tcp { host, port: 0 }),
            other => Ok(other),
        },
        _ => text.parse(),
    }
}

/// Opens a directory, which may be made, or a Situ disk.
fn storage_at(path: &Path) -> situ_storage::Result<Storage> {
    let fail = |error| situ_storage::Error::io("open", path.display(), error);
    match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            let device = device::open(path, device::OpenOptions::default()).map_err(fail)?;
            let volume: Arc<dyn Volume> = Arc::new(RawVolume::open(device, Env::system(), RawOptions::default())?);
            Ok(Storage::Disk(volume))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail(error)),
        _ => Ok(Storage::Directory(path.to_owned())),
    }
}

fn cannot_start(error: &situ_storage::Error, options: &NodeCommand) -> Failure {
    let failure = Failure::new("cannot start the node", error);
    match error {
        situ_storage::Error::Invalid(text) if text.contains("no Situ disk") => failure.cure(format!(
            "name a directory, or prepare the disk with `situ disk format {}`",
            options.place.clone().unwrap_or_default().display()
        )),
        _ => failure,
    }
}

fn log(out: &Output, text: &str) {
    let time = text::utc(text::now_unix_s());
    match out.is_json() {
        true => Message::Log { time: &time, text }.tell(true),
        // The failure cannot be reported, and a reader that went away is no reason to stop serving.
        false => drop(writeln!(std::io::stderr(), "{time} {text}")),
    }
}

/// The addresses of the node.
#[derive(Debug, Serialize)]
struct Listening {
    event: &'static str,
    place: String,
    addresses: Vec<String>,
    /// True if clients have to know a secret.
    secret: bool,
    /// True if connections are encrypted.
    tls: bool,
    #[serde(skip)]
    computes_only: bool,
    process: u32,
}

impl Listening {
    fn banner(&self) -> String {
        let does = if self.computes_only { "compacts for other machines" } else { "keeps files for other machines" };
        let mut text = format!("Situ {} {does}.\n\n", env!("CARGO_PKG_VERSION"));
        let mut row = |name: &str, value: &str| text.push_str(&format!("  {name:<10} {value}\n"));
        row("place", &self.place);
        self.addresses.iter().for_each(|address| row("node", address));
        row("secret", if self.secret { "clients have to know it" } else { "none: only this machine can connect" });
        row("TLS", if self.tls { "connections are encrypted" } else { "none: connections are not encrypted" });
        if let Some(address) = self.addresses.first() {
            let end = if address.starts_with("unix:") { ":" } else { "" };
            let serve = match self.computes_only {
                true => format!("situ serve --compute node://{address}{end}"),
                false => format!("situ serve --capacity node://{address}{end}/default"),
            };
            let (secret, tls) = (
                if self.secret { " --node-secret-file FILE" } else { "" },
                if self.tls { " --node-ca FILE" } else { "" },
            );
            text.push_str(&format!("\nTry, in another terminal:\n\n  {serve}{secret}{tls}\n"));
        }
        text.push_str("\nCtrl-C stops it.\n");
        text
    }
}
