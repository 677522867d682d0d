//! The definition of launches, unit by unit: runs a [`Job`] on memory of any kind.
//!
//! It replaces a missing device, and runs the result of the selection without any kernel:
//!
//! ```text
//! rows          for i in 0..count:  target[offset(i)] = source[offset(i)]                       W bytes each
//! runs          for each run, b in 0..columns:  target[offset + b] = source[offset + b]         1 byte each
//! transpose     for each offset of the batch, r in 0..rows, c in 0..columns:
//!                   target[offset + c column_target + r W] = source[offset + r row_source + c W]
//! draw          for i in 0..count:  target[offset(i)] = the element of index offset(i)
//! ```

use reshard_kernels::random::definition;
use reshard_kernels::random::{Draw, Key};
use reshard_kernels::{DType, LoopNest, PreparedCombine, PreparedDivide};
use reshard_layout::Mode;

use crate::Error;
use crate::job::Job;
use crate::select::{CopyKernel, ElementKernel, ElementOp};

/// Memory with addresses, as a device has.
pub trait Addressed {
    /// Reads the bytes at an address.
    fn read(&self, address: i64, bytes: &mut [u8]) -> Result<(), Error>;
    /// Writes bytes at an address.
    fn write(&mut self, address: i64, bytes: &[u8]) -> Result<(), Error>;
}

impl Addressed for Vec<u8> {
    fn read(&self, address: i64, bytes: &mut [u8]) -> Result<(), Error> {
        let start = address as usize;
        bytes.copy_from_slice(
            self.get(start..start + bytes.len()).ok_or_else(|| outside(address, self.len()))?,
        );
        Ok(())
    }

    fn write(&mut self, address: i64, bytes: &[u8]) -> Result<(), Error> {
        let (start, length) = (address as usize, self.len());
        let place = self.get_mut(start..start + bytes.len()).ok_or_else(|| outside(address, length))?;
        place.copy_from_slice(bytes);
        Ok(())
    }
}

fn outside(address: i64, length: usize) -> Error {
    Error::Driver { call: "a kernel", reason: format!("address {address} is outside {length} bytes") }
}

/// Returns the offsets in source and target of every index of a job's loops from `first` on.
fn places(job: &Job, first: usize) -> impl Iterator<Item = (i64, i64)> + '_ {
    let loops = &job.list[first..job.loops as usize];
    let count: u64 = loops.iter().map(|l| u64::from(l.extent)).product();
    (0..count).map(move |i| {
        let (mut left, mut source, mut target) = (i, job.source, job.target);
        for l in loops {
            let digit = (left % u64::from(l.extent)) as i64;
            left /= u64::from(l.extent);
            source += digit * l.source;
            target += digit * l.target;
        }
        (source, target)
    })
}

/// Runs a job of draws, element by element.
pub fn draw(
    memory: &mut impl Addressed,
    job: &Job,
    key: &Key,
    draw: Draw,
    dtype: DType,
) -> Result<(), Error> {
    places(job, 0).try_for_each(|(index, target)| {
        memory.write(target, &definition::element(key, draw, dtype, index as u64)?)
    })
}

/// Runs a job of copies.
pub fn copy(memory: &mut impl Addressed, job: &Job) -> Result<(), Error> {
    let kernel = CopyKernel::ALL.get(job.kind as usize).copied();
    let mut unit = [0; 16];
    match kernel {
        None => Err(Error::Driver { call: "a kernel", reason: format!("unknown kernel kind {}", job.kind) }),
        Some(CopyKernel::Rows { width }) => places(job, 0).try_for_each(|(source, target)| {
            memory.read(source, &mut unit[..width])?;
            memory.write(target, &unit[..width])
        }),
        Some(CopyKernel::Runs { .. }) => places(job, 1).try_for_each(|(source, target)| {
            let mut run = vec![0; job.columns as usize];
            memory.read(source, &mut run)?;
            memory.write(target, &run)
        }),
        Some(CopyKernel::Transpose { width, .. }) => places(job, 2).try_for_each(|(source, target)| {
            for row in 0..i64::from(job.rows) {
                for column in 0..i64::from(job.columns) {
                    memory.read(source + row * job.row_source + column * width as i64, &mut unit[..width])?;
                    memory.write(target + column * job.column_target + row * width as i64, &unit[..width])?;
                }
            }
            Ok(())
        }),
    }
}

/// Runs a job of an elementwise kernel.
///
/// `bases` are those of the partial values of a reduction, else unused.
pub fn elementwise(
    memory: &mut impl Addressed,
    kernel: ElementKernel,
    job: &Job,
    bases: &[i64],
    divisor: usize,
) -> Result<(), Error> {
    let width = kernel.width;
    let items = width / kernel.dtype.element_bytes()?;
    let nest = LoopNest::new(0, 0, [Mode::new(items as i64, (1, 1))]);
    let combine = match kernel.op {
        ElementOp::Combine(op) | ElementOp::Reduce(op) => {
            Some(PreparedCombine::new(&nest, kernel.dtype, op)?)
        }
        ElementOp::Divide => None,
    };
    let divides = matches!(kernel.op, ElementOp::Reduce(_) | ElementOp::Divide) && divisor != 1;
    let divide = if divides { Some(PreparedDivide::new(&nest, kernel.dtype, divisor)?) } else { None };
    let (mut old, mut new) = ([0; 16], [0; 16]);
    let (old, new) = (&mut old[..width], &mut new[..width]);
    for (source, target) in places(job, 0) {
        let terms: &[i64] = match kernel.op {
            ElementOp::Reduce(_) => {
                let (first, rest) = bases.split_first().ok_or_else(|| Error::Driver {
                    call: "a kernel",
                    reason: "a reduction has no operands".to_owned(),
                })?;
                memory.read(source + first, old)?;
                rest
            }
            ElementOp::Combine(_) => {
                memory.read(target, old)?;
                &[0]
            }
            ElementOp::Divide => {
                memory.read(target, old)?;
                &[]
            }
        };
        for base in terms {
            memory.read(source + base, new)?;
            if let Some(combine) = &combine {
                combine.run(old, new)?;
            }
        }
        if let Some(divide) = &divide {
            divide.run(old)?;
        }
        memory.write(target, old)?;
    }
    Ok(())
}
