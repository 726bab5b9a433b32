//! Which accelerator helps to compact, and how often its work is checked.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use situ::offload::{Offload, Unit};
use situ_accel::{DeviceUnit, FoundDevice, OpenDevice, automatic_device, find_devices};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Tasks that an accelerator has at a time: one is read, one computed, one written.
const LANES: usize = 3;
/// One of this number of tasks is checked, unless the options say otherwise.
const CHECK_EVERY: u32 = 16;

/// The choice of an accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AcceleratorName {
    /// The one that is used unasked, if it is there: see [`automatic_device`].
    #[default]
    Auto,
    /// None.
    Off,
    /// The one with this name.
    Named(String),
}

impl FromStr for AcceleratorName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<AcceleratorName, String> {
        match text {
            "auto" => return Ok(AcceleratorName::Auto),
            "off" => return Ok(AcceleratorName::Off),
            _ => {}
        }
        // Devices are looked for later: their drivers install signal handlers, and the program's own come first.
        let is_numbered = text.split_once(':').is_some_and(|(kind, number)| {
            ["cuda", "opencl"].contains(&kind) && number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty()
        });
        match is_numbered || text == "model" {
            true => Ok(AcceleratorName::Named(text.to_owned())),
            false => Err("an accelerator is auto, off, model, cuda:N or opencl:N".to_owned()),
        }
    }
}

impl fmt::Display for AcceleratorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AcceleratorName::Auto => "auto",
            AcceleratorName::Off => "off",
            AcceleratorName::Named(name) => name,
        })
    }
}

impl TryFrom<String> for AcceleratorName {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<AcceleratorName, String> {
        text.parse()
    }
}

impl From<AcceleratorName> for String {
    fn from(name: AcceleratorName) -> String {
        name.to_string()
    }
}

impl AcceleratorName {
    /// Returns the accelerator; `None` if there is none to be used.
    ///
    /// # Errors
    /// [`Error::Options`]: the accelerator with this name cannot be used here.
    pub fn device(&self) -> Result<Option<Arc<dyn OpenDevice>>> {
        let name = match self {
            AcceleratorName::Off => return Ok(None),
            AcceleratorName::Auto => return Ok(automatic_device()),
            AcceleratorName::Named(name) => name,
        };
        let found = find_devices();
        let names: Vec<String> = found.iter().map(|found| found.name.clone()).collect();
        match found.into_iter().find(|found| found.name == *name) {
            Some(FoundDevice { device: Ok(device), .. }) => Ok(Some(device)),
            Some(FoundDevice { device: Err(why), .. }) => Err(Error::Options(format!("--accelerator {name}: {why}"))),
            None => {
                let known = names.join(", ");
                Err(Error::Options(format!("--accelerator {name}: there is no such accelerator; there are: {known}")))
            }
        }
    }
}

/// The share of tasks that run on two units, which must agree to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CheckUnits {
    /// Every task.
    All,
    /// One of this number of tasks.
    OneOf(u32),
    /// None, except of a unit that is out of service.
    Off,
}

impl FromStr for CheckUnits {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<CheckUnits, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(CheckUnits::All),
            ("off", _) => Ok(CheckUnits::Off),
            (_, Ok(tasks @ 1..)) => Ok(CheckUnits::OneOf(tasks)),
            _ => Err("this option takes all, off, or a number N from 1: one of N tasks is checked".to_owned()),
        }
    }
}

impl fmt::Display for CheckUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckUnits::All => f.write_str("all"),
            CheckUnits::OneOf(tasks) => tasks.fmt(f),
            CheckUnits::Off => f.write_str("off"),
        }
    }
}

impl TryFrom<String> for CheckUnits {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<CheckUnits, String> {
        text.parse()
    }
}

impl From<CheckUnits> for String {
    fn from(check: CheckUnits) -> String {
        check.to_string()
    }
}

/// Adds an accelerator, if there is one, and the rate of checks.
pub(crate) fn add(offload: Offload, name: &AcceleratorName, check: Option<CheckUnits>) -> Result<Offload> {
    let device = name.device()?;
    let check = check.unwrap_or(if device.is_some() { CheckUnits::OneOf(CHECK_EVERY) } else { CheckUnits::Off });
    let offload = match check {
        CheckUnits::All => offload.check_every(1),
        CheckUnits::OneOf(tasks) => offload.check_every(tasks),
        CheckUnits::Off => offload,
    };
    let Some(device) = device else { return Ok(offload) };
    let unit =
        move |env: &situ_base::Env| Arc::new(DeviceUnit::new(env.clone(), Arc::clone(&device), LANES)) as Arc<dyn Unit>;
    Ok(offload.unit_of_each_store(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_rates_are_what_the_options_say() {
        for text in ["auto", "off", "model", "cuda:0", "opencl:0"] {
            assert_eq!(text.parse::<AcceleratorName>().unwrap().to_string(), text);
        }
        assert!("gpu".parse::<AcceleratorName>().unwrap_err().contains("cuda:N"));
        for text in ["", "cuda", "cuda:", "cuda:x", "opencl:-1", "fpga:0"] {
            assert!(text.parse::<AcceleratorName>().is_err(), "{text}");
        }
        for text in ["all", "off", "1", "100"] {
            assert_eq!(text.parse::<CheckUnits>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "some", "1.5"] {
            assert!(text.parse::<CheckUnits>().is_err(), "{text}");
        }
        let named = |text: &str| text.parse::<AcceleratorName>().unwrap().device().map(|device| device.is_some());
        assert_eq!((named("off").unwrap(), named("model").unwrap()), (false, true));
    }
}
