//! Situ: the simulated world: clock, volumes that lose, tear and rot, seeded scheduling.
