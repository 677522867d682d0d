//! The kernels on a CPU: compiled by a C++ compiler with a sanitizer, and driven through a pipe.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use reshard_cuda::{Batch, Launch, Program};

/// Compiler flags of the kernels: an access outside of their buffers, or a misaligned one, ends the program.
///
/// Not optimized, since compiling 15 programs dominates the time, not running them.
const FLAGS: [&str; 8] = [
    "-std=c++17",
    "-O0",
    "-ffp-contract=off",
    "-Wno-unknown-pragmas",
    "-Wno-maybe-uninitialized",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-pipe",
];

/// A program of kernels in a separate process, which is all that an error of the sanitizer ends.
pub(crate) struct Emulator {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

/// A buffer that starts `shift` bytes after a multiple of 256.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) shift: usize,
    pub(crate) bytes: &'a [u8],
}

/// Returns `true` and prints a note if there is no C++ compiler; fails in CI.
pub(crate) fn is_missing() -> bool {
    let missing = Command::new("g++").arg("--version").output().is_err();
    assert!(!missing || std::env::var_os("CI").is_none(), "there is no g++ to compile the kernels for a CPU");
    if missing {
        eprintln!("SKIPPED: there is no g++ to compile the kernels for a CPU");
    }
    missing
}

/// Returns the compiled program, cached by a hash of its inputs across callers.
fn compiled(program: Program, defines: &[&str]) -> PathBuf {
    let source = program.source().expect("a program with kernels");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/laws/emulator");
    let text = |name: &str| std::fs::read_to_string(here.join(name)).expect("a file of the emulator");
    let compiler = Command::new("g++").arg("--version").output().expect("g++: install it").stdout;
    let flags: Vec<String> =
        FLAGS.iter().map(|flag| (*flag).to_owned()).chain(defines.iter().map(|d| format!("-D{d}"))).collect();
    let mut hash = DefaultHasher::new();
    (&source, text("main.cpp"), text("cuda_on_cpu.h"), compiler, &flags).hash(&mut hash);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels-on-cpu");
    std::fs::create_dir_all(&folder).expect("a folder");
    let stem = folder.join(format!("{:016x}", hash.finish()));
    let binary = stem.with_extension("run");
    // Others that need the same program wait here, in this process and in others; the lock ends with the
    // file.
    let lock = File::create(stem.with_extension("lock")).expect("a file");
    lock.lock().expect("a lock");
    if binary.exists() {
        return binary;
    }
    let kernels = stem.with_extension("cu");
    std::fs::write(&kernels, source).expect("a file");
    // Renamed to its final path only when it is complete.
    let part = stem.with_extension("part");
    let output = Command::new("g++")
        .args(flags)
        .arg(format!("-DKERNELS=\"{}\"", kernels.display()))
        .arg("-o")
        .arg(&part)
        .arg(here.join("main.cpp"))
        .output()
        .expect("g++, which compiles the kernels for a CPU: install it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&part, &binary).expect("a file of the same folder");
    binary
}

/// Returns for each copy the accesses to one bank of shared memory in its worst phase; 0 if it uses none.
pub(crate) fn worst_bank_conflicts(defines: &[&str]) -> BTreeMap<String, usize> {
    let output = Command::new(compiled(Program::Copy, defines)).arg("banks").output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("a text");
    let line = |line: &str| {
        line.split_once(' ').map(|(name, worst)| (name.to_owned(), worst.parse().expect("a number")))
    };
    text.lines().filter_map(line).collect()
}

impl Emulator {
    /// Starts a program with these macros defined; compiles it unless it is cached.
    pub(crate) fn new(program: Program, defines: &[&str]) -> Emulator {
        let binary = compiled(program, defines);
        let mut child = Command::new(binary)
            .env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the compiled kernels start");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Emulator { child, stdin, stdout }
    }

    #[allow(clippy::too_many_arguments, reason = "a request has this many fields")]
    /// Returns the target after a kernel; `None` if the kernel ended its process.
    pub(crate) fn run(
        &mut self,
        name: &str,
        blocks: u32,
        descending: bool,
        extra: f64,
        jobs: &[u8],
        bases: &[i64],
        source: Memory<'_>,
        target: Memory<'_>,
    ) -> Option<Vec<u8>> {
        let mut request = Vec::new();
        let number = |request: &mut Vec<u8>, n: u64| request.extend(n.to_ne_bytes());
        let text = |request: &mut Vec<u8>, bytes: &[u8]| {
            request.extend((bytes.len() as u64).to_ne_bytes());
            request.extend(bytes);
        };
        text(&mut request, name.as_bytes());
        number(&mut request, u64::from(blocks));
        number(&mut request, u64::from(descending));
        number(&mut request, extra.to_bits());
        text(&mut request, jobs);
        text(&mut request, bytemuck::cast_slice(bases));
        for memory in [&source, &target] {
            number(&mut request, memory.shift as u64);
            text(&mut request, memory.bytes);
        }
        self.stdin.write_all(&request).ok()?;
        self.stdin.flush().ok()?;
        let mut answer = vec![0; target.bytes.len()];
        self.stdout.read_exact(&mut answer).ok()?;
        Some(answer)
    }

    /// Returns the target after launches of copies, in sequence.
    pub(crate) fn copy(
        &mut self,
        launches: &[Launch<reshard_cuda::CopyKernel>],
        descending: bool,
        source: Memory<'_>,
        target: Memory<'_>,
    ) -> Option<Vec<u8>> {
        let mut bytes = target.bytes.to_vec();
        for l in launches {
            let target = Memory { shift: target.shift, bytes: &bytes };
            bytes = self.run(
                &l.kernel.name(),
                l.blocks,
                descending,
                0.0,
                bytemuck::bytes_of(&l.job),
                &[],
                source,
                target,
            )?;
        }
        Some(bytes)
    }
}

impl Emulator {
    /// Returns the target after a batch, which is passed as to a device.
    pub(crate) fn batch(
        &mut self,
        batch: &Batch,
        descending: bool,
        source: Memory<'_>,
        target: Memory<'_>,
    ) -> Option<Vec<u8>> {
        let image = batch.image();
        let jobs = bytemuck::cast_slice(&image);
        self.run("copy_jobs", batch.blocks(), descending, 0.0, jobs, &[], source, target)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
