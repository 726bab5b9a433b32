//! Options for writing and reading tables.

use std::fmt;

/// The compression of a block before it is stored. A block that does not shrink by an eighth is stored as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Nothing.
    None,
    /// LZ4: fast both ways.
    #[default]
    Lz4,
    /// Zstandard: smaller and slower, above all when written.
    Zstd {
        /// 1 (fast) to 19 (small); negative levels are faster still.
        level: i32,
    },
}

/// `none`, `lz4`, `zstd level 3`: as properties and results show it.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Lz4 => f.write_str("lz4"),
            Compression::Zstd { level } => write!(f, "zstd level {level}"),
        }
    }
}

/// Options for writing a table. The same options and entries give the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableOptions {
    /// Uncompressed size at which a data block is closed. Default 4096. Larger blocks compress better and need a
    /// smaller index; a point read decodes a whole block.
    pub block_bytes: usize,
    /// Every how many entries a data block stores a whole key. Default 16. Fewer make blocks smaller and searches
    /// longer.
    pub restart_interval: usize,
    /// Default LZ4.
    pub compression: Compression,
    /// Size of the filter per user key; 0 writes none. Default 10, at which one absent key in a hundred costs a block
    /// read.
    pub filter_bits_per_key: u32,
    /// Uncompressed size at which an index block is closed. Default 4096.
    pub index_block_bytes: usize,
    /// Written into the properties, for people and for repair. Default 0.
    pub keyspace_id: u32,
    /// Written into the properties, for people and for repair, unless it is empty. Default: empty.
    pub keyspace_name: String,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_bytes: 4096,
            restart_interval: 16,
            compression: Compression::default(),
            filter_bits_per_key: 10,
            index_block_bytes: 4096,
            keyspace_id: 0,
            keyspace_name: String::new(),
        }
    }
}

/// The reach of a read for a block that is not in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reach {
    /// Reads go to the disk, however long that takes.
    #[default]
    Disk,
    /// Reads go only to bytes that need no wait, see [`read_now`](situ_storage::Reader::read_now); for other bytes the
    /// answer is [`NotInMemory`](situ_storage::Error::NotInMemory).
    AtOnce,
    /// Reads go nowhere: the answer is [`NotInMemory`](situ_storage::Error::NotInMemory).
    Cache,
}

/// Options for reading a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Keep blocks that had to be read in the block cache. Default true.
    pub fill_cache: bool,
    /// Verify the checksum of blocks that had to be read (never of those found in the cache). Default true. Without
    /// it, damage may be reported as some other corruption, or give wrong data.
    pub verify_checksums: bool,
    /// The source of blocks that are not in the cache. Default: the disk.
    pub reach: Reach,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { fill_cache: true, verify_checksums: true, reach: Reach::Disk }
    }
}
