//! What theory says of 2 KB values, two to a sector, updated uniformly, with first-in-first-out cleaning.
//!
//! Time is counted in updates for each live value. A value of age `t` is alive with probability `e^-t`. Let `u` be the part of a
//! segment that is alive when it is cleaned. Cleaning then writes `u / (1 - u)` for each update, so `WA = 1 / (1 - u)`.

/// Write amplification and space amplification.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) write: f64,
    pub(crate) space: f64,
}

/// Without trimming: space is `-ln u / (1 - u)`.
pub(crate) fn plain(u: f64) -> Point {
    Point { write: 1.0 / (1.0 - u), space: -u.ln() / (1.0 - u) }
}

/// Dead sectors are discarded: a sector of age `t` takes 2 values' space until both are dead. Space is `1.5 - u / 2`.
pub(crate) fn discard(u: f64) -> Point {
    Point { write: 1.0 / (1.0 - u), space: 1.5 - u / 2.0 }
}

/// Half-dead sectors are also zeroed, from the age at which a part `q` is alive: later for smaller `q`. At `q = 1` they are zeroed at
/// once. Each zeroing writes one value. A sector is zeroed if it is half dead at that age, or becomes so later.
pub(crate) fn full(u: f64, q: f64) -> Point {
    let zeroed_at_age = 2.0 * q * (1.0 - q);
    let zeroed_later = q * q - u * u;
    let zeroings_for_each_value = (zeroed_at_age + zeroed_later.max(0.0)) / 2.0;
    Point { write: 1.0 / (1.0 - u) + zeroings_for_each_value, space: 1.0 + (1.0 - q) * (1.0 - q) / 2.0 }
}

/// The `u` at which a plain log has this space amplification.
pub(crate) fn plain_at(space: f64) -> Point {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if plain(middle).space > space { low = middle } else { high = middle }
    }
    plain(low)
}
