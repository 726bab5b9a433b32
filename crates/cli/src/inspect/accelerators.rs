//! The accelerators that this program knows, and the state of each. None of them is opened.

use crate::DONE;
use crate::failure::Outcome;
use crate::output::Output;
use serde::Serialize;
use situ_accel::{FoundDevice, find_devices};

/// The object that `--json` prints for each accelerator.
#[derive(Debug, Serialize)]
struct Accelerator {
    name: String,
    driver_name: Option<String>,
    usable: bool,
    chosen_by_auto: bool,
    ways: Option<u32>,
    why_not: Option<String>,
}

pub(super) fn show(out: &mut Output) -> Outcome {
    for FoundDevice { name, driver_name, is_hardware, is_automatic, device } in find_devices() {
        let usable = device.is_ok();
        let chosen_by_auto = usable && is_automatic;
        let (ways, why_not) = match device {
            Ok(device) => (Some(device.limits().ways), None),
            Err(why) => (None, Some(why)),
        };
        if out.is_json() {
            out.object(&Accelerator { name, driver_name, usable, chosen_by_auto, ways, why_not })?;
            continue;
        }
        let state = match (ways, why_not) {
            (_, Some(why)) => why,
            (Some(ways), None) if !is_hardware => format!("computes on the processor, for tests; {ways} ways"),
            (ways, None) => format!("can be used; {} ways", ways.unwrap_or_default()),
        };
        let mark = if chosen_by_auto { "  (chosen by --accelerator auto)" } else { "" };
        let driver_name = driver_name.map_or_else(String::new, |name| format!(": {name}"));
        out.line(format!("{name:<8} {state}{driver_name}{mark}"))?;
    }
    DONE
}
