//! `bench`: workloads on Situ, reports of results, and the rules of a machine.

use crate::DONE;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupts;
use crate::options::{BenchCommand, BenchTask, CalibrateCommand, EngineName, NodeAccess, only_served, refuse_for_hash};
use crate::output::Output;
use crate::store::{Home, OpenedHome};
use situ::StoreBuilder;
use situ::offload::Offload;
use situ_bench::{
    BenchResult, Error, Figures, HashFactory, HashSettings, OpenedStore, RulesFile, ServedFactory, SituFactory,
    SituSettings, Stop, StoreFactory, StoreHome,
};
use situ_node::{Class, NodeAddress};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn bench(command: &BenchCommand, out: &mut Output) -> Outcome {
    match &command.task {
        Some(BenchTask::Report(options)) => {
            let differences = situ_bench::report::write_report(options);
            let differences = differences.map_err(|error| failed("cannot make the report", &error))?;
            let report = options.output.display().to_string();
            if out.is_json() {
                out.object(&serde_json::json!({ "report": report, "differences": differences }))?;
            } else {
                out.line(format!("wrote {report}"))?;
                for difference in differences {
                    let values = difference.values.iter().map(|(label, value)| format!("{label}: {value}"));
                    let values = values.collect::<Vec<_>>().join("; ");
                    out.line(format!("the runs differ in {}: {values}", difference.name))?;
                }
            }
        }
        Some(BenchTask::Calibrate(command)) => calibrate(command, out)?,
        None => {
            if let Some(path) = &command.output {
                can_be_saved(path)?;
            }
            let result = measure(command)?;
            if out.is_json() {
                out.object(&result)?;
            } else {
                out.bytes(situ_bench::table::render(&result).as_bytes())?;
            }
            // The figures are shown even if the file cannot be written.
            out.finish()?;
            if let Some(path) = &command.output {
                save(path, &result).map_err(|why| Failure::new(format!("cannot write {}", path.display()), why))?;
            }
        }
    }
    DONE
}

/// Runs the workloads. A signal ends the run, which then removes what it has made; a second one ends the program at
/// once.
fn measure(command: &BenchCommand) -> Result<BenchResult, Failure> {
    // First: an accelerator's driver may have signal handlers of its own. Below ours, they end the program.
    let signals = stopped_by_signals()?;
    if let Some(address) = &command.workload.connect {
        let is_plain = command.engine == EngineName::Lsm
            && command.store == SituSettings::default()
            && command.hash == HashSettings::default();
        if !is_plain || command.node.capacity.is_some() || !command.node.compute.is_empty() {
            return Err(Failure::usage(
                "--connect drives a server, which has its engine and settings from its own start",
            ));
        }
        return measure_with(command, &ServedFactory::new(address, &command.workload), signals);
    }
    match command.engine {
        EngineName::Lsm if command.hash != HashSettings::default() => {
            Err(Failure::usage("--buckets, --partitions, --pending-bytes and --load-percent are for --engine hash"))
        }
        EngineName::Lsm => measure_with(command, &ordered(command)?, signals),
        EngineName::Cache => Err(only_served()),
        EngineName::Hash => {
            command.node.check_for_hash()?;
            let settings =
                "what --help lists for ordered stores (memtables, caches, compression, compactions, the fast disk)";
            refuse_for_hash(&[(command.store != SituSettings::default(), settings)])?;
            measure_with(command, &HashFactory::new(command.hash.clone()), signals)
        }
    }
}

/// Stores with ordered tables, as the command says.
fn ordered(command: &BenchCommand) -> Result<SituFactory, Failure> {
    let node = &command.node;
    let has_nodes = node.capacity.is_some() || !node.compute.is_empty();
    let unusable = |error| failed("the benchmark cannot run", &error);
    let offload = command.store.offload().map_err(unusable)?;
    let home = has_nodes.then(|| Arc::new(WithNodes(node.clone(), offload)) as Arc<dyn StoreHome>);
    let store_options = command.store.options().map_err(unusable)?;
    Ok(SituFactory::new(store_options).with_fast_disk(command.store.fast_disk.clone()).with_home(home))
}

fn measure_with(
    command: &BenchCommand,
    factory: &dyn StoreFactory,
    (stop, interrupts): (Stop, Interrupts),
) -> Result<BenchResult, Failure> {
    let options = &command.workload;
    let store = options.directory.join("store");
    situ_bench::run_until(options, factory, &stop).map_err(|error| {
        let shown = store.display();
        let is_left = !factory.is_served() && store.exists();
        match (&error, interrupts.first()) {
            (Error::Stopped, Some(signal)) => Failure::interrupted(signal).cure(match is_left {
                _ if factory.is_served() => "the server keeps what was written; no result was written".to_owned(),
                true => format!("its store is left in {shown}, as the options say; no result was written"),
                false => "its store is removed; no result was written".to_owned(),
            }),
            (Error::Options(_) | Error::Directory(_), _) => failed("the benchmark cannot run", &error),
            _ => match is_left && !options.existing {
                true => failed("the benchmark stopped", &error)
                    .cure(format!("its store is left in {shown} to be looked at; remove it before the next run")),
                false => failed("the benchmark stopped", &error),
            },
        }
    })
}

/// Creates a stop that a first signal sets off.
fn stopped_by_signals() -> Result<(Stop, Interrupts), Failure> {
    let stop = Stop::default();
    let stopped = stop.clone();
    let interrupts = Interrupts::until_the_second(move || stopped.stop());
    Ok((stop, interrupts.map_err(|error| Failure::new("cannot catch signals", error))?))
}

/// Measures the machine, shows what was measured, and writes the rules.
fn calibrate(command: &CalibrateCommand, out: &mut Output) -> Result<(), Failure> {
    let options = &command.options;
    let what = "cannot calibrate";
    can_be_saved(&options.output)?;
    // That the file is another one is said before the minute that it takes.
    let mut file = RulesFile::read_if_there(&options.output).map_err(|error| failed(what, &error.into()))?;
    let volume = match &command.capacity {
        Some(address) if !NodeAddress::is_one(&address.display().to_string()) => {
            return Err(Failure::usage("--capacity takes node://HOST:PORT/STORE; for a directory, say --directory"));
        }
        Some(address) => {
            Some(Home::at(address, &command.keys).volume().map_err(|error| Failure::store(what, address, &error))?)
        }
        None => None,
    };
    let (stop, interrupts) = stopped_by_signals()?;
    let calibration =
        situ_bench::calibrate(options, volume, &stop).map_err(|error| match (&error, interrupts.first()) {
            (Error::Stopped, Some(signal)) => {
                Failure::interrupted(signal).cure("its tables are removed; no rules were written")
            }
            _ => failed(what, &error),
        })?;
    match out.is_json() {
        true => out.object(&calibration)?,
        false => out.bytes(calibration.render().as_bytes())?,
    }
    out.finish()?;
    file.set(options.side, calibration.rules());
    file.write(&options.output).map_err(|error| failed("cannot write the rules", &error.into()))?;
    if !out.is_json() {
        out.line(format!("wrote {}", options.output.display()))?;
    }
    Ok(())
}

/// Stores on a node, or here with nodes that help.
struct WithNodes(NodeAccess, Offload);

impl StoreHome for WithNodes {
    /// The figures are what all nodes have moved so far, both ways, by class: `wire_read_bytes` and others.
    fn open(&self, builder: StoreBuilder, directory: &Path) -> situ::Result<OpenedStore> {
        let OpenedHome { store, clients } =
            Home::new(directory.to_owned(), &self.0).open_with_nodes(builder, self.1.clone())?;
        let traffics: Vec<_> = clients.iter().map(|client| Arc::clone(client.traffic())).collect();
        let of_class = move |class: Class| {
            let bytes = traffics.iter().map(|traffic| traffic.sent(class) + traffic.received(class)).sum();
            (format!("wire_{}_bytes", class.name()), bytes)
        };
        let figures: Figures = Arc::new(move || Class::ALL.into_iter().map(&of_class).collect());
        Ok(OpenedStore { store, figures })
    }

    fn remove(&self, directory: &Path) -> situ::Result<()> {
        let home = Home::new(directory.to_owned(), &self.0);
        home.destroy()?;
        if home.is_on_node() {
            let removed = std::fs::remove_dir(directory);
            removed.map_err(|error| situ_storage::Error::io("remove", directory.display().to_string(), error))?;
        }
        Ok(())
    }
}

/// A run can take hours: that its result has no place to go is said before it.
fn can_be_saved(path: &Path) -> Result<(), Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() || !directory.is_dir() {
        let why = if path.is_dir() {
            "it is a directory".to_owned()
        } else {
            format!("there is no directory {}", directory.display())
        };
        return Err(Failure::new(format!("cannot write {}", path.display()), why)
            .cure("name a file in a directory that exists; nothing was measured"));
    }
    Ok(())
}

fn save(path: &Path, result: &BenchResult) -> Result<(), String> {
    let file = File::create(path).map_err(|error| error.to_string())?;
    let mut writer = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut writer, result).map_err(|error| error.to_string())?;
    writer.into_inner().map_err(|error| error.to_string())?.sync_all().map_err(|error| error.to_string())
}

fn failed(what: &str, error: &Error) -> Failure {
    let failure = Failure::new(what, error);
    match error {
        Error::Options(_) => failure.ending(Exit::Usage),
        _ => failure,
    }
}
