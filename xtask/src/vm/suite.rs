//! Tests that are built here and run in a virtual machine, as commands of `cargo xtask`.

use std::path::PathBuf;

use super::{Kernel, VirtualMachine, check};
use crate::workspace::{Outcome, require, test_program};

/// The tests of one directory, and what they need.
pub struct Suite<'a> {
    /// For wrong arguments.
    pub usage: &'a str,
    /// The test of the package `nowait`.
    pub test: &'a str,
    /// Programs that the tests run, with their Debian packages.
    pub programs: &'a [(&'a str, &'a str)],
    /// Modules of the kernel.
    pub modules: &'a [&'a str],
    /// Modules that kernels may also do without.
    pub modules_if_any: &'a [&'a str],
    /// What the tests must not be skipped for the lack of (`NOWAIT_TESTS_REQUIRE`).
    pub requires: &'a str,
    /// When the machine is switched off, unless told otherwise.
    pub minutes: u32,
}

/// Tests that run at a time: as many as the machine has processors.
const THREADS: &str = "--test-threads=2";

impl Suite<'_> {
    /// Builds the tests here and runs them there.
    ///
    /// # Errors
    /// Wrong arguments; what is missing; a test has failed.
    pub fn run(&self, args: &[String]) -> Outcome {
        let (mut minutes, mut kernel, mut accelerator) = (self.minutes, None, "tcg");
        let mut tests = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--minutes" => {
                    let number = args.next().and_then(|text| text.parse().ok());
                    minutes = number.ok_or("--minutes needs a whole number")?;
                }
                "--kernel" => {
                    kernel = Some(PathBuf::from(args.next().ok_or("--kernel needs a directory")?));
                }
                "--accel" => accelerator = args.next().ok_or("--accel needs a name")?,
                name if !name.starts_with('-') => tests.push(name),
                _ => return Err(self.usage.to_owned()),
            }
        }
        check()?;
        require(self.programs)?;
        let kernel = match kernel {
            Some(root) => Kernel::at(&root)?,
            None => Kernel::of_debian()?,
        };
        let program = test_program(self.test)?;
        let more = self.modules_if_any.iter().filter(|name| kernel.modules(&[name]).is_ok());
        let modules: Vec<_> = self.modules.iter().chain(more).copied().collect();
        let (modules, seconds_max) = (&modules[..], minutes * 60);
        let machine = VirtualMachine { kernel: &kernel, modules, accelerator, seconds_max };
        let variables = [("NOWAIT_TESTS_REQUIRE", self.requires), ("RUST_TEST_NOCAPTURE", "1")];
        let command = [&[&program[..], THREADS], &tests[..]].concat();
        machine.run(&variables, &command)
    }
}
