//! Values whose sizes change while a workload runs.
//!
//! A schedule is text: `30:64Kx80+1Kx20,70:1K` says that the first 30% of a thread's requests write values of 64 KiB,
//! 80 times in 100, or of 1 KiB. The other 70% write 1 KiB. Parts are in the order of the requests, and their shares
//! make 100. Sizes in a part are drawn by weight; a size alone needs none.
//!
//! *Rejected:* a list of named workloads. The papers' tables differ, and a result names its schedule this way.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::random::Random;
use situ_settings::parse_bytes_within;

/// The longest value that a schedule may name.
const VALUE_BYTES_MAX: u64 = 16 << 20;

/// Value sizes by how far a workload is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ValueSchedule {
    text: String,
    parts: Vec<Part>,
}

/// A share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// The part ends here, in percent of the requests.
    end_percent: u64,
    /// Sizes in bytes, with weights.
    sizes: Vec<(usize, u64)>,
    weights: u64,
}

impl ValueSchedule {
    /// Returns the size of the value of the request number `issued`, of `operations`.
    pub(crate) fn value_bytes(&self, issued: u64, operations: u64, random: &mut Random) -> usize {
        let percent = (u128::from(issued) * 100 / u128::from(operations.max(1))) as u64;
        let part = self.parts.iter().find(|part| percent < part.end_percent).or(self.parts.last());
        part.map_or(0, |part| part.draw(random))
    }

    /// Returns the longest value.
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.parts.iter().flat_map(|part| &part.sizes).map(|(bytes, _)| *bytes).max().unwrap_or(0)
    }
}

impl Part {
    fn draw(&self, random: &mut Random) -> usize {
        let mut rest = random.below(self.weights);
        for (bytes, weight) in &self.sizes {
            match rest.checked_sub(*weight) {
                Some(left) => rest = left,
                None => return *bytes,
            }
        }
        unreachable!("a number below the sum of the weights lies in one of them")
    }

    fn parse(text: &str, begin_percent: u64) -> Result<Part, String> {
        let (share, sizes) =
            text.split_once(':').ok_or_else(|| format!("{text:?} is not SHARE:SIZES, as in 30:64Kx80+1Kx20"))?;
        let share: u64 = share.trim().parse().map_err(|_| format!("{share:?} is no share in percent"))?;
        if share == 0 {
            return Err(format!("{text:?} has a share of nothing"));
        }
        let sizes = sizes.split('+').map(parse_size).collect::<Result<Vec<_>, _>>()?;
        let weights = sizes.iter().map(|(_, weight)| weight).sum();
        Ok(Part { end_percent: begin_percent + share.min(1000), sizes, weights })
    }
}

/// `64Kx80` or `64K`.
fn parse_size(text: &str) -> Result<(usize, u64), String> {
    let (bytes, weight) = text.split_once('x').unwrap_or((text, "1"));
    let weight = weight.trim().parse().ok().filter(|weight| (1..=1_000_000).contains(weight));
    let weight = weight.ok_or_else(|| format!("{text:?} has no weight from 1 to 1000000 after the x"))?;
    Ok((parse_bytes_within(bytes, 0, VALUE_BYTES_MAX)? as usize, weight))
}

impl FromStr for ValueSchedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        for part in text.split(',') {
            let begin_percent = parts.last().map_or(0, |part| part.end_percent);
            parts.push(Part::parse(part, begin_percent)?);
        }
        match parts.last().map_or(0, |part| part.end_percent) {
            100 => Ok(Self { text: text.to_owned(), parts }),
            sum => Err(format!("the shares of {text:?} make {sum}%, and have to make 100%")),
        }
    }
}

impl TryFrom<String> for ValueSchedule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ValueSchedule> for String {
    fn from(schedule: ValueSchedule) -> String {
        schedule.text
    }
}

impl fmt::Display for ValueSchedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
