//! Options as keyword arguments: their names are those of the fields in Rust, their values become texts.

use crate::errors::Failure;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyString, PyTuple};
use situ::{KeyspaceOptions, Options};

/// Returns the text of an option's value.
fn text_of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_none() {
        return Ok("none".to_owned());
    }
    if let Ok(is) = value.cast::<PyBool>() {
        return Ok(is.is_true().to_string());
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyString>() {
        return Ok(value.str()?.to_string());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let texts = value.try_iter()?.map(|one| text_of(name, &one?)).collect::<PyResult<Vec<_>>>()?;
        return Ok(texts.join(", "));
    }
    let found = value.get_type();
    Err(PyTypeError::new_err(format!(
        "the option {name} is an int, a bool, a str, a list of them, or None; not {found}"
    )))
}

fn set_each(given: Option<&Bound<'_, PyDict>>, mut set: impl FnMut(&str, &str) -> situ::Result<()>) -> PyResult<()> {
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        set(&name, &text_of(&name, &value)?).map_err(Failure::from)?;
    }
    Ok(())
}

/// Returns the options of a store.
pub(crate) fn of_store(given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::default();
    set_each(given, |name, text| options.set(name, text))?;
    Ok(options)
}

/// Returns the options of a keyspace: `defaults` but for those that are given.
pub(crate) fn of_keyspace(defaults: &KeyspaceOptions, given: Option<&Bound<'_, PyDict>>) -> PyResult<KeyspaceOptions> {
    let mut options = defaults.clone();
    set_each(given, |name, text| options.set(name, text))?;
    Ok(options)
}
