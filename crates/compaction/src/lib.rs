//! Situ: from input tables to output tables, on any unit.
