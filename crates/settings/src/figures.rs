//! Figures for people: numbers with units.

/// Formats a number that is not small with three significant digits: `1.23`, `12.3`, `123`.
fn digits(value: f64) -> String {
    let decimals = if value.abs() >= 99.95 {
        0
    } else if value.abs() >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

/// Formats a value in the largest unit that keeps it at or above one.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or("");
    for larger in units {
        if value.abs() < step * 0.9995 {
            break;
        }
        value /= step;
        unit = larger;
    }
    format!("{}{unit}", digits(value))
}

/// Formats a count: `950`, `1.20 k`, `3.40 M`.
#[must_use]
pub fn count(value: f64) -> String {
    if value < 1000.0 && value.fract() == 0.0 {
        return format!("{value}");
    }
    scaled(value, 1000.0, &["", " k", " M", " G", " T"])
}

/// Formats a rate: `1.20 M/s`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    format!("{}/s", count(per_second))
}

/// Formats a size: `19 B`, `4.00 KiB`, `1.50 GiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    if value < 1024.0 && value.fract() == 0.0 {
        return format!("{value} B");
    }
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Formats a time: `750 ns`, `1.20 µs`, `3.40 ms`, `5.60 s`.
#[must_use]
pub fn time(nanoseconds: f64) -> String {
    if nanoseconds == 0.0 {
        return "0 s".to_owned();
    }
    scaled(nanoseconds, 1000.0, &[" ns", " µs", " ms", " s"])
}

/// Formats a factor: `1.23×`.
#[must_use]
pub fn factor(value: f64) -> String {
    format!("{}×", digits(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_carry_the_unit_that_reads_best() {
        assert_eq!(count(950.0), "950");
        assert_eq!(count(1_234_567.0), "1.23 M");
        assert_eq!(bytes(64.0 * 1024.0 * 1024.0), "64.0 MiB");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(19.0), "19 B");
        assert_eq!(time(0.0), "0 s");
        assert_eq!(time(999.9), "1.00 µs");
        assert_eq!(time(250.0), "250 ns");
        assert_eq!(time(3_600e9), "3600 s");
        assert_eq!(factor(12.34), "12.3×");
    }
}
