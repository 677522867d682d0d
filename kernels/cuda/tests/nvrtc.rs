//! Every kernel compiled for a device that need not exist: registers, spills, and the width of its accesses.
//!
//! Skips with a note if NVRTC or the disassembler is missing; with `RESHARD_NEED_NVRTC=1` that is a failure.
#![cfg(feature = "cuda")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use reshard_cuda::{Arch, CopyKernel, Library, Program, compile, exported};
use reshard_test_support::Sweep;

fn skipped(why: &str) -> bool {
    assert!(std::env::var_os("RESHARD_NEED_NVRTC").is_none(), "{why}");
    eprintln!("SKIPPED: {why}");
    true
}

fn without_nvrtc() -> bool {
    match Library::Nvrtc.check() {
        Ok(()) => false,
        Err(e) => skipped(&e.to_string()),
    }
}

/// Returns registers and spilled bytes of each kernel in a log of ptxas.
fn usage(log: &str) -> BTreeMap<String, (usize, usize)> {
    let mut all = BTreeMap::new();
    let mut name = String::new();
    let number = |line: &str, before: &str| -> usize {
        let end = line.find(before).unwrap_or(0);
        line[..end]
            .split([' ', ','])
            .rfind(|w| !w.is_empty())
            .and_then(|w| w.parse().ok())
            .unwrap_or(usize::MAX)
    };
    let mut spills = usize::MAX;
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            rest.split('\'').next().unwrap_or_default().clone_into(&mut name);
        } else if line.contains("bytes spill stores") {
            spills = number(line, " bytes spill stores") + number(line, " bytes spill loads");
        } else if line.contains("registers") {
            all.insert(name.clone(), (number(line, " registers"), spills));
        }
    }
    all
}

#[test]
fn every_kernel_compiles_without_spills() {
    if without_nvrtc() {
        return;
    }
    // 18 copies; 4 combinations and 4 reductions, for floats also a division, a combination and a reduction
    // by norms, for each width. And 12 draws.
    let all = 12 + 18 + 8 * (2 * 5 + 2 * 4 + 2 * 3 + 2 * 2) + 11 * (4 + 4 + 3 + 2);
    assert_eq!(Program::all().map(|program| program.kernels().len()).sum::<usize>(), all);
    for (_, program) in (0..).zip(Program::all()).filter(|(n, _)| Sweep::asked().takes(*n)) {
        let binary = compile(program, Arch::SM_90).unwrap_or_else(|e| panic!("{program:?}: {e}"));
        if std::env::var_os("RESHARD_SHOW_LOG").is_some() {
            eprintln!("{}", binary.log);
        }
        let usage = usage(&binary.log);
        for name in program.kernels() {
            let (registers, spills) =
                usage.get(&name).copied().unwrap_or_else(|| panic!("{name}: {}", binary.log));
            assert_eq!(spills, 0, "{program:?} {name}");
            // With 64, four blocks of 256 threads share a multiprocessor; batches include every code path.
            // Arithmetic on bytes needs more.
            let most = if program == Program::Copy { 64 } else { 96 };
            assert!(registers <= most, "{program:?} {name}: {registers} registers");
        }
        assert_eq!(usage.len(), program.kernels().len(), "{program:?}");
    }
}

/// Returns the width of a line's access to global memory: `E.128` of `LDG.E.128.CONSTANT`.
fn width<'a>(line: &'a str, access: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("{access}."))?;
    let word = rest.split([' ', ';']).next()?;
    ["E.128", "E.64", "E.U16", "E.U8", "E.S16", "E.S8"]
        .into_iter()
        .find(|w| word.starts_with(w))
        .or(word.starts_with('E').then_some("E"))
}

#[test]
fn accesses_are_as_wide_as_selected() {
    if without_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cubin = folder.path().join("copy.cubin");
    std::fs::write(&cubin, &compile(Program::Copy, Arch::SM_90).unwrap().cubin).unwrap();
    let Ok(listing) = Command::new("nvdisasm").arg("--print-code").arg(&cubin).output() else {
        skipped("no nvdisasm on the PATH: the Python package nvidia-cuda-nvdisasm has it");
        return;
    };
    assert!(listing.status.success(), "{}", String::from_utf8_lossy(&listing.stderr));
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let section = |name: &str| -> Vec<&str> {
        let header = format!(".text.{name}:");
        let lines = listing.lines().skip_while(|l| l.trim() != header).skip(1);
        lines.take_while(|l| !(l.trim().starts_with(".text.") && l.trim().ends_with(':'))).collect()
    };
    for kernel in CopyKernel::ALL {
        let code = section(&exported(&kernel.name()));
        assert!(code.len() > 20, "{} has {} lines", kernel.name(), code.len());
        let of = |access: &str| code.iter().filter(|l| l.contains(access)).count();
        // The allowed accesses, each of which must occur.
        let widths: [&[&str]; 2] = match kernel {
            CopyKernel::Rows { .. } | CopyKernel::Transpose { .. } => {
                let one: &[&str] = match kernel.access_bytes() {
                    16 => &["E.128"],
                    8 => &["E.64"],
                    4 => &["E"],
                    2 => &["E.U16"],
                    _ => &["E.U8"],
                };
                [one, one]
            }
            // Whole words by 16 bytes, or assembled from reads of 4; the ends of runs by units.
            CopyKernel::Runs { width: 1 } => [&["E.128", "E", "E.U8"], &["E.128", "E.U8"]],
            CopyKernel::Runs { width: 2 } => [&["E.128", "E", "E.U16"], &["E.128", "E.U16"]],
            CopyKernel::Runs { .. } => [&["E.128", "E"], &["E.128", "E"]],
        };
        for (access, widths) in ["LDG", "STG"].into_iter().zip(widths) {
            let found: BTreeSet<&str> = code.iter().filter_map(|line| width(line, access)).collect();
            assert_eq!(found, widths.iter().copied().collect(), "{access} of {}", kernel.name());
        }
        let funnels = code.iter().filter(|l| l.contains("SHF.R.W")).count();
        let shifted = matches!(kernel, CopyKernel::Runs { width: 1 | 2 });
        assert_eq!(funnels >= 4, shifted, "{}: {funnels} funnel shifts", kernel.name());
        let through_shared = of("LDS") > 0 && of("STS") > 0 && of("BAR.SYNC") > 0;
        assert_eq!(through_shared, matches!(kernel, CopyKernel::Transpose { .. }), "{}", kernel.name());
    }
}
