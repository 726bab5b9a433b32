//! `disk show` without a device, `disk bind`, `disk unbind`: NVMe controllers on PCI.

use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::options::{DiskBindOptions, DiskUnbindOptions};
use crate::output::Output;
use crate::text;
use serde::Serialize;
use situ_device::pci::{Address, Controller, Controllers, Error, Kernel, Namespace, Neighbour, Unbound, VFIO_DRIVER};
use situ_rawdisk::Signature;
use std::fs::File;
use std::io::{self, Read};

#[derive(Serialize)]
struct Shown {
    address: String,
    model: Option<String>,
    serial: Option<String>,
    /// Null: no driver has it.
    driver: Option<String>,
    /// The IOMMU group; null without an IOMMU.
    group: Option<u32>,
    /// The other devices of the group.
    group_others: Vec<ShownNeighbour>,
    /// Empty unless the kernel's driver has the controller.
    namespaces: Vec<ShownNamespace>,
    bound: bool,
    /// `bind` refuses it without `--force`, for what it holds or may hold.
    needs_force: bool,
    /// The reasons why it cannot be bound, or if it is bound, used.
    obstacles: Vec<String>,
}

#[derive(Serialize)]
struct ShownNeighbour {
    name: String,
    driver: Option<String>,
}

#[derive(Serialize)]
struct ShownNamespace {
    name: String,
    id: u32,
    bytes: u64,
    uses: Vec<String>,
    /// Contents that are recognised.
    contents: Option<String>,
    #[serde(skip)]
    is_foreign: bool,
    /// The reason why nothing could look at them.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents_unknown: Option<String>,
}

/// Reads the front of a disk, and returns what it holds, if that is recognised.
fn contents(mut file: &File) -> io::Result<Option<Signature>> {
    let mut front = Vec::with_capacity(Signature::FRONT_BYTES);
    file.by_ref().take(Signature::FRONT_BYTES as u64).read_to_end(&mut front)?;
    Ok(Signature::of(&front))
}

impl Shown {
    fn of(controller: &Controller) -> Result<Shown, Error> {
        let neighbour = |Neighbour { name, driver, .. }| ShownNeighbour { name, driver };
        let namespaces: Vec<ShownNamespace> = controller.namespaces()?.into_iter().map(ShownNamespace::of).collect();
        Ok(Shown {
            address: controller.address().to_string(),
            model: controller.model().map(str::to_owned),
            serial: controller.serial().map(str::to_owned),
            driver: controller.driver().map(str::to_owned),
            group: controller.group(),
            group_others: controller.neighbours()?.into_iter().map(neighbour).collect(),
            needs_force: controller.driver().is_none() || namespaces.iter().any(|namespace| namespace.is_foreign),
            namespaces,
            bound: controller.is_bound(),
            obstacles: controller.obstacles()?.iter().map(ToString::to_string).collect(),
        })
    }

    fn lines(&self) -> Vec<String> {
        let mut head = self.address.clone();
        self.model.iter().for_each(|model| head.push_str(&format!("  {}", text::on_one_line(model))));
        self.serial.iter().for_each(|serial| head.push_str(&format!(", serial {}", text::on_one_line(serial))));
        let mut lines = vec![head];
        let driver = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "none".to_owned());
        lines.push(format!("driver     {}", driver(&self.driver)));
        let others: Vec<String> =
            self.group_others.iter().map(|other| format!("{} ({})", other.name, driver(&other.driver))).collect();
        lines.push(match self.group {
            None => "group      none: without an IOMMU".to_owned(),
            Some(group) if others.is_empty() => format!("group      {group}, alone"),
            Some(group) => format!("group      {group}, with {}", others.join(", ")),
        });
        lines.extend(self.namespaces.iter().map(ShownNamespace::line));
        lines.push(match (self.bound, self.obstacles.is_empty()) {
            (true, true) => format!("state      bound: a store names its namespace 1 pci:{}/1", self.address),
            (true, false) => format!("state      bound, and of no use: {}", self.obstacles.join("; ")),
            (false, true) if self.needs_force => {
                format!("state      `situ disk bind {}` refuses it without --force", self.address)
            }
            (false, true) => format!("state      `situ disk bind {}` can take it", self.address),
            (false, false) => format!("state      cannot be bound: {}", self.obstacles.join("; ")),
        });
        lines
    }
}

impl ShownNamespace {
    fn of(namespace: Namespace) -> ShownNamespace {
        let found = File::open(&namespace.path).and_then(|file| contents(&file));
        let (signature, contents_unknown) = match found {
            Ok(signature) => (signature, None),
            Err(error) => (None, Some(format!("cannot read {}: {error}", namespace.path.display()))),
        };
        ShownNamespace {
            name: namespace.name,
            id: namespace.id,
            bytes: namespace.bytes,
            uses: namespace.uses.iter().map(ToString::to_string).collect(),
            contents: signature.map(|signature| signature.to_string()),
            is_foreign: matches!(signature, Some(Signature::Other(_))),
            contents_unknown,
        }
    }

    fn line(&self) -> String {
        let contents = match (&self.contents, &self.contents_unknown) {
            (Some(contents), _) => contents.clone(),
            (None, Some(why)) => format!("contents unknown: {why}"),
            (None, None) => "nothing that Situ recognises".to_owned(),
        };
        let uses: String = self.uses.iter().map(|one| format!("; {one}")).collect();
        format!("{:<10} namespace {}, {}: {contents}{uses}", self.name, self.id, text::bytes(self.bytes))
    }
}

fn failed(what: impl std::fmt::Display, error: &Error) -> Failure {
    let failure = Failure::new(what, error);
    match error.cure() {
        Some(cure) => failure.cure(cure),
        None => failure,
    }
}

pub(super) fn show(controllers: &Controllers, out: &mut Output) -> Outcome {
    let cannot = |error: Error| failed("cannot list the NVMe controllers", &error);
    let listed = controllers.list().map_err(cannot)?;
    if listed.is_empty() && !out.is_json() {
        out.line("no NVMe controllers on PCI")?;
    }
    for (at, controller) in listed.iter().enumerate() {
        let shown = Shown::of(controller).map_err(cannot)?;
        if out.is_json() {
            out.object(&shown)?;
            continue;
        }
        if at > 0 {
            out.line("")?;
        }
        for line in shown.lines() {
            out.line(line)?;
        }
    }
    DONE
}

/// The answer of `bind` and `unbind`.
#[derive(Serialize)]
struct Moved<'a> {
    address: String,
    driver: &'a str,
    /// False: it was so before.
    changed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
}

pub(super) fn bind(
    options: &DiskBindOptions,
    controllers: &Controllers,
    kernel: &dyn Kernel,
    out: &mut Output,
) -> Outcome {
    let address = options.address;
    let what = "cannot bind the drive";
    let cannot = |error: Error| failed(what, &error);
    let controller = controllers.find(address).map_err(cannot)?;
    let changed = !controller.is_bound();
    if changed {
        let claimed = controller.claim(kernel).map_err(cannot)?;
        if !options.force {
            check_contents(what, &controller, claimed.disks())?;
        }
        claimed.bind().map_err(cannot)?;
    }
    let group = controller.group();
    if out.is_json() {
        out.object(&Moved { address: address.to_string(), driver: VFIO_DRIVER, changed, group })?;
        return DONE;
    }
    let now = if changed { "is bound to vfio-pci now" } else { "was bound to vfio-pci already" };
    let group = group.map(|group| format!(" (IOMMU group {group})")).unwrap_or_default();
    out.line(format!("{address} {now}{group}. A store names its namespace 1 pci:{address}/1."))?;
    out.line(format!("`situ disk unbind {address}` gives it back to the kernel."))?;
    DONE
}

/// Refuses a drive on which something is recognised that is no Situ disk, and one that cannot be looked at.
fn check_contents(what: &str, controller: &Controller, disks: &[(String, File)]) -> Result<(), Failure> {
    let address = controller.address();
    if controller.driver().is_none() {
        let why = "no driver has the drive, so that its contents are unknown";
        return Err(Failure::new(what, why).cure(format!(
            "`situ disk unbind {address}` gives it to the kernel, and then `bind` can look at it; --force binds it as it is"
        )));
    }
    for (name, file) in disks {
        let found = contents(file).map_err(|error| {
            Failure::new(what, format!("cannot read /dev/{name}: {error}")).cure("--force binds the drive as it is")
        })?;
        if let Some(signature @ Signature::Other(_)) = found {
            return Err(Failure::new(what, format!("{name} holds {signature}"))
                .cure("if it is not needed, bind the drive with --force"));
        }
    }
    Ok(())
}

pub(super) fn unbind(
    options: &DiskUnbindOptions,
    controllers: &Controllers,
    kernel: &dyn Kernel,
    out: &mut Output,
) -> Outcome {
    let address: Address = options.address;
    let unbound = controllers.find(address).and_then(|controller| controller.unbind(kernel));
    let unbound = unbound.map_err(|error| failed("cannot give the drive back to the kernel", &error))?;
    let (driver, changed) = match &unbound {
        Unbound::Now(driver) => (driver, true),
        Unbound::Before(driver) => (driver, false),
    };
    if out.is_json() {
        out.object(&Moved { address: address.to_string(), driver, changed, group: None })?;
    } else if changed {
        out.line(format!("The kernel's driver {driver} has {address} again."))?;
    } else {
        out.line(format!("The kernel's driver {driver} had {address} already."))?;
    }
    DONE
}

#[cfg(test)]
mod tests;
