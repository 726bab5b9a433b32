//! The secret that host and node share, proven without being sent.
//!
//! 1. Each end draws a nonce for the connection: [`Hello`](crate::message::Hello) and
//!    [`Challenge`](crate::message::Challenge).
//! 2. The host proves first: HMAC-SHA256 of both messages, under the secret. Who connects and does not know the secret
//!    gets nothing to guess it by.
//! 3. The node checks, and proves with the same messages and another label. So no proof can be sent back to its sender.
//!
//! With TLS, both proofs also cover a value that only the two ends of that TLS connection know. So a machine in between
//! cannot pass proofs on. Without TLS, a machine between the two reads and changes what follows: use TLS, or a network
//! that is your own.

use ring::hmac;
use situ_storage::{Error, Result};
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use subtle::ConstantTimeEq;

/// A shorter secret could be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// A secret that host and node share.
#[derive(Clone)]
pub struct Secret {
    key: hmac::Key,
}

/// The end that proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prover {
    /// The host.
    Host,
    /// The node.
    Device,
}

impl Prover {
    /// Returns the label that keeps the proofs of the two ends apart.
    pub fn label(self) -> &'static [u8] {
        match self {
            Prover::Host => b"situ node 1 host",
            Prover::Device => b"situ node 1 device",
        }
    }
}

/// The messages before the proofs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The payload of the host's Hello.
    pub hello: Vec<u8>,
    /// The payload of the node's Challenge.
    pub challenge: Vec<u8>,
    /// The value that only the ends of the TLS connection know; empty without TLS.
    pub binding: Vec<u8>,
}

impl Secret {
    /// Makes the secret of these bytes.
    ///
    /// # Errors
    /// It is too short.
    pub fn new(bytes: &[u8]) -> Result<Secret> {
        if bytes.len() < SECRET_BYTES_MIN {
            let found = bytes.len();
            return Err(Error::Invalid(format!(
                "the node's secret has {found} bytes; it needs {SECRET_BYTES_MIN}, such as 32 random hexadecimal digits"
            )));
        }
        Ok(Secret { key: hmac::Key::new(hmac::HMAC_SHA256, bytes) })
    }

    /// Reads the secret in a file, without white space at its end.
    ///
    /// # Errors
    /// The file cannot be read, every user may read it, or the secret is too short.
    pub fn read(path: &Path) -> Result<Secret> {
        let fail = |e| Error::io("read", path.display(), e);
        let mode = fs::metadata(path).map_err(fail)?.permissions().mode();
        if mode & 0o007 != 0 {
            let (shown, mode) = (path.display(), mode & 0o777);
            return Err(Error::Invalid(format!(
                "{shown} holds a secret, and every user may open it (mode {mode:o}); say `chmod o= {shown}`"
            )));
        }
        Secret::new(fs::read(path).map_err(fail)?.trim_ascii_end())
    }

    /// Returns the proof that one end knows the secret.
    pub fn prove(&self, prover: Prover, transcript: &Transcript) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [prover.label(), &transcript.hello, &transcript.challenge, &transcript.binding] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let tag = context.sign();
        std::array::from_fn(|index| tag.as_ref()[index])
    }

    /// Returns true if a proof is right, in the same time for every wrong one.
    pub fn accepts(&self, prover: Prover, transcript: &Transcript, proof: &[u8; 32]) -> bool {
        self.prove(prover, transcript).ct_eq(proof).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Returns unpredictable bytes.
///
/// # Errors
/// The system gives none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    situ_base::random().map_err(|error| Error::io("read", "the system's random numbers", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    fn transcript() -> Transcript {
        Transcript { hello: b"hello".to_vec(), challenge: b"challenge".to_vec(), binding: Vec::new() }
    }

    #[test]
    fn a_proof_holds_for_its_prover_its_words_and_its_secret_only() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let proof = secret.prove(Prover::Host, &transcript());
        assert!(secret.accepts(Prover::Host, &transcript(), &proof));
        assert!(!secret.accepts(Prover::Device, &transcript(), &proof), "a proof sent back");
        let moved = Transcript { hello: b"helloc".to_vec(), challenge: b"hallenge".to_vec(), ..transcript() };
        assert!(!secret.accepts(Prover::Host, &moved, &proof), "words moved from one message to the other");
        let elsewhere = Transcript { binding: b"another TLS connection".to_vec(), ..transcript() };
        assert!(!secret.accepts(Prover::Host, &elsewhere, &proof));
        let other = Secret::new(b"0123456789abcdeg").unwrap();
        assert!(!other.accepts(Prover::Host, &transcript(), &proof));
    }

    #[test]
    fn a_proof_is_the_hmac_that_the_page_says() {
        // By Python's `hmac`, over labels and messages with their lengths before them.
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let proof = secret.prove(Prover::Host, &transcript());
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "d93e28542666cebbba3b80d983165cf0ae2545001a10ce15fa1812d1141c9c00");
    }

    #[test]
    fn a_secret_that_is_short_or_open_to_all_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let secret = Secret::read(&path).unwrap();
        let proof = Secret::new(b"0123456789abcdef").unwrap().prove(Prover::Host, &transcript());
        assert!(secret.accepts(Prover::Host, &transcript(), &proof), "the newline is no part of it");
        assert_eq!(format!("{secret:?}"), "Secret");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().contains("chmod"));
        assert!(Secret::new(b"short").unwrap_err().to_string().contains("16"));
    }
}
