//! The calls of VFIO, as `linux/vfio.h` has them.

use super::super::Dma;
use crate::PAGE_BYTES;
use crate::ioctl::Call;
use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, ioctl, opcode};
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::without_provenance_mut;

const fn number(of: u8) -> Opcode {
    opcode::none(b';', 100 + of)
}

const GET_API_VERSION: Opcode = number(0);
const CHECK_EXTENSION: Opcode = number(1);
const SET_IOMMU: Opcode = number(2);
const GROUP_GET_STATUS: Opcode = number(3);
const GROUP_SET_CONTAINER: Opcode = number(4);
const GROUP_GET_DEVICE_FD: Opcode = number(6);
const DEVICE_GET_INFO: Opcode = number(7);
const DEVICE_GET_REGION_INFO: Opcode = number(8);
const DEVICE_GET_IRQ_INFO: Opcode = number(9);
const DEVICE_SET_IRQS: Opcode = number(10);
const DEVICE_RESET: Opcode = number(11);
const IOMMU_GET_INFO: Opcode = number(12);
const IOMMU_MAP_DMA: Opcode = number(13);
const IOMMU_UNMAP_DMA: Opcode = number(14);

/// The version of the interface that is used here.
pub(super) const API_VERSION: u32 = 0;
/// An IOMMU behind which mappings are ended as a whole, as they were made.
const TYPE1_V2_IOMMU: usize = 3;

const GROUP_IS_VIABLE: u32 = 1;
const DEVICE_HAS_RESET: u32 = 1;
const REGION_IS_MAPPABLE: u32 = 1 << 2;
const REGION_HAS_CAPABILITIES: u32 = 1 << 3;
const IOMMU_HAS_CAPABILITIES: u32 = 1 << 1;
const DMA_READ_AND_WRITE: u32 = 0b11;
const IRQ_DATA_IS_EVENTS: u32 = 1 << 2;
const IRQ_ACTION_TRIGGER: u32 = 1 << 5;

const SPARSE_MAPPABLE: u16 = 1;
const ADDRESS_RANGES: u16 = 1;
const MAPPINGS_LEFT: u16 = 3;

/// A part of a PCI function that is read and written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Region {
    /// The memory that its first base address register names: an NVMe controller's registers.
    Registers = 0,
    /// Its configuration space.
    Configuration = 7,
}

/// A kind of interrupt of a PCI function.
#[derive(Debug, Clone, Copy)]
pub(super) enum Interrupt {
    /// The function's own, MSI-X.
    Own = 2,
    /// The kernel asks for the function, because it is to be removed.
    Request = 4,
}

/// Interrupts that one process uses of a function.
pub(super) const VECTORS_MAX: usize = 32;

#[repr(C)]
struct GroupStatus {
    argument_bytes: u32,
    flags: u32,
}

#[repr(C)]
struct DeviceInfo {
    argument_bytes: u32,
    flags: u32,
    regions: u32,
    interrupts: u32,
}

#[repr(C)]
struct RegionInfo {
    argument_bytes: u32,
    flags: u32,
    index: u32,
    capability_at: u32,
    bytes: u64,
    offset: u64,
    capabilities: [u8; 1024],
}

#[repr(C)]
struct IommuInfo {
    argument_bytes: u32,
    flags: u32,
    page_sizes: u64,
    capability_at: u32,
    padding: u32,
    capabilities: [u8; 4096],
}

#[repr(C)]
struct IrqInfo {
    argument_bytes: u32,
    flags: u32,
    index: u32,
    count: u32,
}

#[repr(C)]
struct IrqSet {
    argument_bytes: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    events: [RawFd; VECTORS_MAX],
}

#[repr(C)]
struct DmaMap {
    argument_bytes: u32,
    flags: u32,
    memory: u64,
    address: u64,
    bytes: u64,
}

#[repr(C)]
struct DmaUnmap {
    argument_bytes: u32,
    flags: u32,
    address: u64,
    bytes: u64,
}

const _: () = {
    assert!(size_of::<GroupStatus>() == 8 && size_of::<DeviceInfo>() == 16 && size_of::<IrqInfo>() == 16);
    assert!(size_of::<RegionInfo>() == 32 + 1024 && size_of::<IommuInfo>() == 24 + 4096);
    assert!(size_of::<IrqSet>() == 20 + 4 * VECTORS_MAX && size_of::<DmaMap>() == 32 && size_of::<DmaUnmap>() == 24);
};

/// Makes a call that takes a number, or nothing.
///
/// # Safety
/// The call is one of those.
unsafe fn call<const OPCODE: Opcode>(file: &File, argument: usize) -> Result<u32> {
    // SAFETY: the caller's promise; no memory is named.
    unsafe { ioctl(file, Call::<OPCODE> { argument: without_provenance_mut(argument) }) }
}

/// Makes a call that takes the address of a value and may change the value.
///
/// # Safety
/// The call takes a `T`, and what its fields name is as the call demands.
unsafe fn call_with<const OPCODE: Opcode, T>(file: &File, value: &mut T) -> Result<u32> {
    // SAFETY: the value is laid out as the kernel has it, says its own length, and is borrowed through the call.
    unsafe { ioctl(file, Call::<OPCODE> { argument: (&raw mut *value).cast::<c_void>() }) }
}

const fn length_of<T>() -> u32 {
    size_of::<T>() as u32
}

/// Returns the version of the interface.
pub(super) fn api_version(container: &File) -> Result<u32> {
    // SAFETY: it takes nothing.
    unsafe { call::<GET_API_VERSION>(container, 0) }
}

/// Returns true if a container can have an IOMMU of the type used here.
pub(super) fn has_iommu(container: &File) -> Result<bool> {
    // SAFETY: it takes a number.
    Ok(unsafe { call::<CHECK_EXTENSION>(container, TYPE1_V2_IOMMU) }? > 0)
}

/// Gives a container, which has a group, its IOMMU.
pub(super) fn set_iommu(container: &File) -> Result<()> {
    // SAFETY: it takes a number.
    unsafe { call::<SET_IOMMU>(container, TYPE1_V2_IOMMU) }.map(drop)
}

/// Returns true if all functions of the group are in the hands of VFIO, or of no driver.
pub(super) fn is_viable(group: &File) -> Result<bool> {
    let mut status = GroupStatus { argument_bytes: length_of::<GroupStatus>(), flags: 0 };
    // SAFETY: it takes this structure.
    unsafe { call_with::<GROUP_GET_STATUS, _>(group, &mut status) }?;
    Ok(status.flags & GROUP_IS_VIABLE != 0)
}

/// Puts a group into a container.
pub(super) fn set_container(group: &File, container: &File) -> Result<()> {
    let mut number: RawFd = container.as_raw_fd();
    // SAFETY: it takes the address of a descriptor's number.
    unsafe { call_with::<GROUP_SET_CONTAINER, _>(group, &mut number) }.map(drop)
}

/// Opens a function of a group, by its address on PCI.
pub(super) fn open_function(group: &File, address: &CStr) -> Result<File> {
    let argument = address.as_ptr().cast_mut().cast();
    // SAFETY: it takes the address of a text that ends with a zero, and only reads it.
    let number = unsafe { ioctl(group, Call::<GROUP_GET_DEVICE_FD> { argument }) }?;
    let number = RawFd::try_from(number).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just opened this descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(number) }.into())
}

/// Returns true if the kernel knows how to reset a function.
pub(super) fn has_reset(function: &File) -> Result<bool> {
    let mut info = DeviceInfo { argument_bytes: length_of::<DeviceInfo>(), flags: 0, regions: 0, interrupts: 0 };
    // SAFETY: it takes this structure.
    unsafe { call_with::<DEVICE_GET_INFO, _>(function, &mut info) }?;
    Ok(info.flags & DEVICE_HAS_RESET != 0)
}

/// Resets a function.
pub(super) fn reset(function: &File) -> Result<()> {
    // SAFETY: it takes nothing.
    unsafe { call::<DEVICE_RESET>(function, 0) }.map(drop)
}

/// A region's place in the file of its function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The parts that can be mapped: where each begins in the region, and its length.
    pub(super) mappable: Vec<(u64, u64)>,
}

/// Returns the place of a region.
pub(super) fn region(function: &File, region: Region) -> Result<Placed> {
    let mut info = RegionInfo {
        argument_bytes: length_of::<RegionInfo>(),
        flags: 0,
        index: region as u32,
        capability_at: 0,
        bytes: 0,
        offset: 0,
        capabilities: [0; 1024],
    };
    // SAFETY: it takes this structure, and capabilities behind it, as far as the length goes.
    unsafe { call_with::<DEVICE_GET_REGION_INFO, _>(function, &mut info) }?;
    Ok(placed(&info))
}

fn placed(info: &RegionInfo) -> Placed {
    let sparse = capability(&info.capabilities, 32, info.capability_at, SPARSE_MAPPABLE)
        .filter(|_| info.flags & REGION_HAS_CAPABILITIES != 0);
    let mappable = match sparse {
        _ if info.flags & REGION_IS_MAPPABLE == 0 => Vec::new(),
        None => vec![(0, info.bytes)],
        Some(areas) => pairs(areas),
    };
    Placed { offset: info.offset, bytes: info.bytes, mappable }
}

/// Returns the number of interrupts of a kind.
pub(super) fn interrupts(function: &File, kind: Interrupt) -> Result<u32> {
    let mut info = IrqInfo { argument_bytes: length_of::<IrqInfo>(), flags: 0, index: kind as u32, count: 0 };
    // SAFETY: it takes this structure.
    unsafe { call_with::<DEVICE_GET_IRQ_INFO, _>(function, &mut info) }?;
    Ok(info.count)
}

/// Connects the first interrupts of a kind with event descriptors. Returns the number of interrupts that the system
/// has for the function, if they are fewer. Then none is connected.
pub(super) fn connect(function: &File, kind: Interrupt, events: &[RawFd]) -> Result<std::result::Result<(), u32>> {
    assert!(!events.is_empty() && events.len() <= VECTORS_MAX, "{} interrupts at once", events.len());
    let mut set = IrqSet {
        argument_bytes: 20 + 4 * events.len() as u32,
        flags: IRQ_DATA_IS_EVENTS | IRQ_ACTION_TRIGGER,
        index: kind as u32,
        start: 0,
        count: events.len() as u32,
        events: [-1; VECTORS_MAX],
    };
    set.events[..events.len()].copy_from_slice(events);
    // SAFETY: it takes this structure. The kernel keeps the descriptors open for itself.
    match unsafe { call_with::<DEVICE_SET_IRQS, _>(function, &mut set) }? {
        0 => Ok(Ok(())),
        fewer => Ok(Err(fewer)),
    }
}

/// The properties of a container's IOMMU.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Iommu {
    /// Ranges of addresses for mappings: the first and the last address of each. Empty: the kernel does not say.
    pub(super) ranges: Vec<(u64, u64)>,
    /// The number of mappings that can be made, if the kernel says.
    pub(super) mappings: Option<u32>,
    pub(super) maps_pages: bool,
}

/// Returns the properties of the container's IOMMU.
pub(super) fn iommu(container: &File) -> Result<Iommu> {
    let mut info = IommuInfo {
        argument_bytes: length_of::<IommuInfo>(),
        flags: 0,
        page_sizes: 0,
        capability_at: 0,
        padding: 0,
        capabilities: [0; 4096],
    };
    // SAFETY: it takes this structure, and capabilities behind it, as far as the length goes.
    unsafe { call_with::<IOMMU_GET_INFO, _>(container, &mut info) }?;
    Ok(properties(&info))
}

fn properties(info: &IommuInfo) -> Iommu {
    let capability = |id| {
        capability(&info.capabilities, 24, info.capability_at, id).filter(|_| info.flags & IOMMU_HAS_CAPABILITIES != 0)
    };
    Iommu {
        ranges: capability(ADDRESS_RANGES).map(pairs).unwrap_or_default(),
        mappings: capability(MAPPINGS_LEFT).and_then(|bytes| Some(u32::from_ne_bytes(*bytes.first_chunk()?))),
        maps_pages: info.page_sizes & PAGE_BYTES as u64 != 0,
    }
}

/// Lets the functions of a container reach memory.
///
/// # Safety
/// As for [`Function::map`](super::super::Function::map).
pub(super) unsafe fn map(container: &File, address: u64, memory: Dma) -> Result<()> {
    let mut map = DmaMap {
        argument_bytes: length_of::<DmaMap>(),
        flags: DMA_READ_AND_WRITE,
        memory: memory.start().as_ptr().expose_provenance() as u64,
        address,
        bytes: memory.bytes() as u64,
    };
    // SAFETY: it takes this structure; the caller's promise for the memory.
    unsafe { call_with::<IOMMU_MAP_DMA, _>(container, &mut map) }.map(drop)
}

/// Ends all mappings that lie in a range of addresses; returns their bytes. None may lie there in part.
pub(super) fn unmap(container: &File, address: u64, bytes: u64) -> Result<u64> {
    let mut unmap = DmaUnmap { argument_bytes: length_of::<DmaUnmap>(), flags: 0, address, bytes };
    // SAFETY: it takes this structure.
    unsafe { call_with::<IOMMU_UNMAP_DMA, _>(container, &mut unmap) }?;
    Ok(unmap.bytes)
}

/// Returns the contents of a capability: the bytes behind its header. `first` counts from the beginning of the
/// structure, which has `before` bytes before `capabilities`.
fn capability(capabilities: &[u8], before: usize, first: u32, id: u16) -> Option<&[u8]> {
    let mut at = first as usize;
    // A chain goes up in memory, so it ends.
    loop {
        let header = capabilities.get(at.checked_sub(before)?..)?;
        let (header, contents) = header.split_first_chunk::<8>()?;
        if u16::from_ne_bytes([header[0], header[1]]) == id {
            return Some(contents);
        }
        let next = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]) as usize;
        if next <= at {
            return None;
        }
        at = next;
    }
}

/// Returns the pairs of a capability that has their number before them.
fn pairs(contents: &[u8]) -> Vec<(u64, u64)> {
    let Some((head, rest)) = contents.split_first_chunk::<8>() else { return Vec::new() };
    let count = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let (words, _) = rest.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().take(count).map(|[one, other]| (u64::from_ne_bytes(*one), u64::from_ne_bytes(*other))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The numbers as the preprocessor gives them for `linux/vfio.h`.
    #[test]
    fn numbers_and_layouts_are_those_of_the_header() {
        let numbers = [GET_API_VERSION, CHECK_EXTENSION, SET_IOMMU, GROUP_GET_STATUS, GROUP_SET_CONTAINER];
        assert_eq!(numbers, [0x3b64, 0x3b65, 0x3b66, 0x3b67, 0x3b68]);
        let numbers = [GROUP_GET_DEVICE_FD, DEVICE_GET_INFO, DEVICE_GET_REGION_INFO, DEVICE_GET_IRQ_INFO];
        assert_eq!(numbers, [0x3b6a, 0x3b6b, 0x3b6c, 0x3b6d]);
        let numbers = [DEVICE_SET_IRQS, DEVICE_RESET, IOMMU_GET_INFO, IOMMU_MAP_DMA, IOMMU_UNMAP_DMA];
        assert_eq!(numbers, [0x3b6e, 0x3b6f, 0x3b70, 0x3b71, 0x3b72]);
        assert_eq!((offset_of!(RegionInfo, bytes), offset_of!(RegionInfo, offset)), (16, 24));
        assert_eq!((offset_of!(IommuInfo, page_sizes), offset_of!(IommuInfo, capability_at)), (8, 16));
        assert_eq!((offset_of!(IrqSet, count), offset_of!(IrqSet, events)), (16, 20));
        assert_eq!((offset_of!(DmaMap, memory), offset_of!(DmaMap, address), offset_of!(DmaMap, bytes)), (8, 16, 24));
        assert_eq!((offset_of!(DmaUnmap, address), offset_of!(DmaUnmap, bytes)), (8, 16));
    }

    /// Writes a capability, and pairs or a number behind it.
    fn put(into: &mut [u8], id: u16, next: u32, contents: &[u8]) {
        into[..2].copy_from_slice(&id.to_ne_bytes());
        into[2..4].copy_from_slice(&1_u16.to_ne_bytes());
        into[4..8].copy_from_slice(&next.to_ne_bytes());
        into[8..8 + contents.len()].copy_from_slice(contents);
    }

    fn counted(pairs: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = (pairs.len() as u64).to_le_bytes().to_vec();
        pairs.iter().for_each(|(one, other)| bytes.extend([one.to_ne_bytes(), other.to_ne_bytes()].concat()));
        bytes
    }

    fn iommu_info() -> IommuInfo {
        let (capability_at, capabilities) = (24, [0; 4096]);
        let flags = IOMMU_HAS_CAPABILITIES | 1;
        IommuInfo { argument_bytes: 0, flags, page_sizes: 0x4020_1000, capability_at, padding: 0, capabilities }
    }

    #[test]
    fn ranges_and_limits_are_found_in_the_chain() {
        let ranges = [(0, 0xfedf_ffff), (0xfef0_0000, 0x7f_ffff_ffff)];
        let mut info = iommu_info();
        put(&mut info.capabilities, 2, 24 + 40, &[0; 24]);
        put(&mut info.capabilities[40..], MAPPINGS_LEFT, 24 + 56, &65_535_u32.to_ne_bytes());
        put(&mut info.capabilities[56..], ADDRESS_RANGES, 0, &counted(&ranges));
        let found = properties(&info);
        assert_eq!(found, Iommu { ranges: ranges.to_vec(), mappings: Some(65_535), maps_pages: true });
        info.flags = 1;
        info.page_sizes = 0x20_0000;
        assert_eq!(properties(&info), Iommu { ranges: Vec::new(), mappings: None, maps_pages: false });
    }

    #[test]
    fn a_chain_that_goes_astray_ends() {
        for (first, next) in [(24, 24), (24, 8), (0, 0), (24 + 4095, 0), (u32::MAX, 0), (24, u32::MAX)] {
            let mut info = iommu_info();
            info.capability_at = first;
            put(&mut info.capabilities, 2, next, &[]);
            assert_eq!(properties(&info).ranges, []);
        }
        // More pairs are announced than there are.
        let mut info = iommu_info();
        put(&mut info.capabilities[4096 - 32..], ADDRESS_RANGES, 0, &[0xff; 24]);
        info.capability_at = 24 + 4096 - 32;
        assert_eq!(properties(&info).ranges, [(u64::MAX, u64::MAX)]);
    }

    #[test]
    fn a_region_is_mapped_as_far_as_the_kernel_allows() {
        let info = |flags| {
            let (bytes, offset, capabilities) = (0x4000, 1 << 40, [0; 1024]);
            RegionInfo { argument_bytes: 0, flags, index: 0, capability_at: 32, bytes, offset, capabilities }
        };
        let placed = |info: &RegionInfo| placed(info).mappable;
        assert_eq!(placed(&info(0b11)), []);
        assert_eq!(placed(&info(0b111)), [(0, 0x4000)]);
        let mut sparse = info(0b1111);
        put(&mut sparse.capabilities, 3, 40, &[]);
        assert_eq!(placed(&sparse), [(0, 0x4000)], "the table of interrupts may be mapped, too");
        put(&mut sparse.capabilities[8..], SPARSE_MAPPABLE, 0, &counted(&[(0, 0x2000), (0x3000, 0x1000)]));
        assert_eq!(placed(&sparse), [(0, 0x2000), (0x3000, 0x1000)]);
    }
}
