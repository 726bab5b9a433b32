//! Options of `changes` and `follow`.

use super::Directory;
use clap::Args;
use situ::ChangePosition;
use std::path::PathBuf;

/// Print the changes of a store, batch by batch, as JSON lines.
///
/// Each line is a batch that was committed, with its position in the store's history. A batch is printed when it is
/// durable. docs/formats/changes.md describes the lines. A store keeps the changes that `situ serve --keep-changes`
/// says. If a server has the store open, the command runs there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ changes /var/lib/situ --since 120:9ab31c07\n  \
                        situ changes /var/lib/situ --since now --follow >> audit.jsonl")]
pub(crate) struct ChangesOptions {
    #[command(flatten)]
    pub(crate) directory: Directory,
    /// Position behind which the changes begin, as a line has it, or `now`. A number alone skips the check that the
    /// store's history is the same
    #[arg(long, value_name = "POSITION", default_value = "0", value_parser = parse_since)]
    pub(crate) since: Since,
    /// Wait for further changes of a store that a server has open. A line without changes comes every five seconds in
    /// which there are none
    #[arg(long)]
    pub(crate) follow: bool,
}

/// Where the changes begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    Now,
    Position(ChangePosition),
}

fn parse_since(text: &str) -> Result<Since, String> {
    if text == "now" {
        return Ok(Since::Now);
    }
    text.parse().map(Since::Position).map_err(|error: String| format!("{error}, or `now`"))
}

/// Keep a copy of a store up to date by its changes.
///
/// If there is no copy yet, the command makes one by a checkpoint, first under the name .COPY.partial. Then it applies
/// each batch of the store in one batch of the copy, together with the position. So a copy whose follower was killed
/// goes on where it was. Programs and commands may read the copy meanwhile. Write nothing else into it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  situ follow /var/lib/situ /srv/copy\n  \
                        ssh db1 situ changes /var/lib/situ --follow --since $(situ follow - /srv/copy --position) \\\n    \
                        | situ follow - /srv/copy\n  situ follow - /srv/restored < audit.jsonl")]
pub(crate) struct FollowOptions {
    /// Directory of the store. `-` reads the lines of `situ changes` from standard input
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// Directory of the copy. It is made if it does not exist, or is empty
    #[arg(value_name = "COPY")]
    pub(crate) copy: PathBuf,
    /// The copy is a checkpoint or a restored backup, and its last sequence number is this
    #[arg(long, value_name = "NUMBER")]
    pub(crate) from: Option<u64>,
    /// End when the copy has all changes, and wait for none
    #[arg(long)]
    pub(crate) once: bool,
    /// Print the position of the copy, and apply nothing
    #[arg(long, conflicts_with_all = ["from", "once"])]
    pub(crate) position: bool,
}
