//! Errors of engines, as clients see them.

use std::fmt;

/// An error of an engine. The message is sent to clients after `SERVER_ERROR `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineError {
    message: String,
}

impl EngineError {
    /// Creates an error with a reason in prose; control characters become spaces, as it travels in a line of text.
    pub fn new(message: impl fmt::Display) -> EngineError {
        let mut message = message.to_string().replace(|c: char| c.is_control(), " ");
        // A reply line must stay a line that clients accept.
        if let Some((end, _)) = message.char_indices().nth(400) {
            message.truncate(end);
        }
        EngineError { message }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EngineError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_cannot_break_the_protocol() {
        let error = EngineError::new(format!("disk\r\nSTORED {}", "x".repeat(1000)));
        assert!(error.to_string().starts_with("disk  STORED"));
        assert_eq!(error.to_string().len(), 400);
    }
}
