//! Complete answers as the results of calls.

use crate::answer::{Found, Given, Word};
use crate::error::{Error, Outcome};
use crate::item::{Cas, CasId, Item};
use std::sync::Arc;

/// Makes a result of an answer, or `None` if the answer does not belong to the command.
pub(crate) type Finish<T> = fn(Given) -> Option<T>;

/// Makes the result of a call of its answer.
pub(crate) fn finish<T>(server: &Arc<str>, given: Given, by: Finish<T>) -> Result<T, Error> {
    match given {
        Given::Refused(answer) => Err(Error::Refused { server: Arc::clone(server), answer }),
        given => by(given).ok_or_else(|| foreign(server)),
    }
}

/// The error of an answer that belongs to another command.
pub(crate) fn foreign(server: &Arc<str>) -> Error {
    let fault = "the answer belongs to another command".to_owned();
    Error::Garbled { server: Arc::clone(server), fault, outcome: Outcome::Unknown }
}

/// Commands that do something, or find nothing to do it to.
pub(crate) fn done(given: Given) -> Option<bool> {
    match given {
        Given::Word(Word::Stored | Word::Deleted | Word::Touched | Word::Ok) => Some(true),
        Given::Word(Word::NotStored | Word::NotFound) => Some(false),
        _ => None,
    }
}

pub(crate) fn nothing(given: Given) -> Option<()> {
    done(given).map(drop)
}

pub(crate) fn cas(given: Given) -> Option<Cas> {
    match given {
        Given::Word(Word::Stored) => Some(Cas::Stored),
        Given::Word(Word::Exists) => Some(Cas::Changed),
        Given::Word(Word::NotFound) => Some(Cas::Missing),
        _ => None,
    }
}

pub(crate) fn number(given: Given) -> Option<Option<u64>> {
    match given {
        Given::Number(number) => Some(Some(number)),
        Given::Word(Word::NotFound) => Some(None),
        _ => None,
    }
}

pub(crate) fn values(given: Given) -> Option<Vec<Found>> {
    match given {
        Given::Values(found) => Some(found),
        _ => None,
    }
}

pub(crate) fn item(given: Given) -> Option<Option<Item>> {
    values(given).map(|mut found| found.pop().map(|found| found.item))
}

/// `None` also for a server that sends no cas id.
pub(crate) fn versioned(given: Given) -> Option<Option<(Item, CasId)>> {
    match values(given)?.pop() {
        Some(found) => Some(Some((found.item, found.cas?))),
        None => Some(None),
    }
}

pub(crate) fn statistics(given: Given) -> Option<Vec<(String, String)>> {
    match given {
        Given::Statistics(statistics) => Some(statistics),
        _ => None,
    }
}

pub(crate) fn version(given: Given) -> Option<String> {
    match given {
        Given::Version(version) => Some(version),
        _ => None,
    }
}
