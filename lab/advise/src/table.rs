//! The facts of a server about a table.

/// A table, and what the server has counted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The schema's name, as the catalogue has it.
    pub schema: String,
    /// The table's name, as the catalogue has it.
    pub name: String,
    /// The kind of the table, which decides if it holds rows itself.
    pub kind: Kind,
    /// The server's block length in bytes, 8192 unless it was compiled otherwise.
    pub block_bytes: u32,
    /// The fill factor in force: 100 unless the table says otherwise.
    pub fillfactor: u32,
    /// Rows by the last ANALYZE or VACUUM; `None` before the first.
    pub rows: Option<f64>,
    /// Bytes of the table itself, without indexes and out-of-line values.
    pub heap_bytes: u64,
    /// Bytes of its indexes.
    pub index_bytes: u64,
    /// Bytes of values that lie out of line, with their index.
    pub toast_bytes: u64,
    /// The columns that exist, in the order of the rows.
    pub columns: Vec<Column>,
    /// The indexes.
    pub indexes: Vec<Index>,
    /// The counts since the statistics were reset.
    pub counts: Counts,
}

/// The kinds of tables, by the rows that they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A table that holds rows. Children by inheritance hold rows of their own, and are tables of their own here.
    Ordinary,
    /// A partition of another table; it holds rows.
    Partition,
    /// A table that is made of partitions, and holds no row.
    Partitioned,
}

/// The server's counts of a table: `pg_stat_user_tables`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// `n_tup_ins`.
    pub inserted: u64,
    /// `n_tup_upd`.
    pub updated: u64,
    /// `n_tup_hot_upd`, a part of `updated`.
    pub hot_updated: u64,
    /// `n_tup_newpage_upd`: updates whose new version went to another page. Servers before version 16 do not count it.
    pub new_page_updated: Option<u64>,
    /// `n_tup_del`.
    pub deleted: u64,
}

impl Counts {
    /// Updates that were not HOT, for want of room or because an indexed column changed.
    pub fn not_hot(&self) -> u64 {
        self.updated.saturating_sub(self.hot_updated)
    }

    /// Returns the most updates that more room could have made HOT. An update may leave its page *and* change an
    /// indexed column: so this is the smaller one of the two counts.
    pub fn want_room(&self) -> u64 {
        self.new_page_updated.map_or(self.not_hot(), |moved| moved.min(self.not_hot()))
    }
}

/// A column: `pg_attribute` and `pg_stats`.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The name, as the catalogue has it.
    pub name: String,
    /// `avg_width`: the mean of the bytes in the row, where a value is present; `None` without statistics. A value that
    /// lies out of line counts 18, the length of its pointer.
    pub width: Option<f64>,
    /// `null_frac`.
    pub null_share: f64,
    /// `attlen` where the length is fixed.
    pub fixed_bytes: Option<u32>,
    /// `attalign`.
    pub alignment: Alignment,
}

/// `attalign`: where a value may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// `c`
    One,
    /// `s`
    Two,
    /// `i`
    Four,
    /// `d`
    Eight,
}

impl Alignment {
    /// Returns the alignment in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Alignment::One => 1,
            Alignment::Two => 2,
            Alignment::Four => 4,
            Alignment::Eight => 8,
        }
    }
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The name, as the catalogue has it.
    pub name: String,
    /// Columns that it depends on: its keys, what it includes, and what its expressions and its predicate read.
    pub columns: Vec<String>,
    /// An index that only summarises ranges of pages (BRIN). From version 16 on, a change of its columns alone leaves
    /// an update HOT.
    pub summarizes: bool,
}

impl Table {
    /// Returns the pages of the table itself.
    pub fn pages(&self) -> u64 {
        self.heap_bytes.div_ceil(u64::from(self.block_bytes))
    }

    /// Indexes that get an entry by an update that is not HOT.
    pub fn indexes_to_spare(&self) -> usize {
        self.indexes.iter().filter(|index| !index.summarizes).count()
    }

    /// Returns the columns that no index depends on. An update that changes nothing else can be HOT.
    pub fn free_columns(&self) -> Vec<&str> {
        let covered = |name: &str| {
            self.indexes.iter().any(|index| !index.summarizes && index.columns.iter().any(|column| column == name))
        };
        self.columns.iter().map(|column| column.name.as_str()).filter(|name| !covered(name)).collect()
    }
}
