//! Situ: workloads, measurement, reports.
