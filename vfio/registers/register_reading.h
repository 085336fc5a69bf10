// SPDX-License-Identifier: Apache-2.0
// Reads the registers of GPUs and NVSwitches on vfio-pci or without a driver, in a child of the host writer.
// A function that a VM has, or that another driver owns, is not touched.
//
// A reading wakes a function and enables its memory range for as long as it takes. Before each such change
// the child notes it in run/ferry/hostd/register-reading, which it keeps locked. A child that is killed
// leaves the note, and the next child, started for that, restores the function first.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/pci_address.h"
#include "vfio/registers/register_facts.h"

namespace ferry::vfio {

struct FunctionRegisters {
  PciAddress address;
  RegisterFacts registers;
};

/// Waking a function takes up to 0.1 s, and a node has some ten of them.
inline constexpr std::chrono::seconds kRegisterDeadline{10};

struct RegisterReading {
  std::vector<FunctionRegisters> functions;  ///< in the order in which they were asked for
  std::vector<std::string> faults = {};  ///< changes that could not be undone; the next reading tries again
};

/// Reads all functions in one child and restores each before the next. Without functions it only restores
/// those of a killed child. If the child dies, each function is read again alone. Never fails: a function
/// that cannot be read has its `problem`, and so have all after the deadline; the late child restores its
/// function once it returns from the kernel, and reads no other.
RegisterReading read_registers(HostWriter& writer, std::span<const PciAddress> functions,
                               std::chrono::milliseconds deadline = kRegisterDeadline);

/// True if a killed child may have left a function changed.
bool has_unfinished_reading(const HostFs& host);

/// The child's side, a HostLibrary of this name. The request has the deadline in
/// milliseconds of the steady clock, and then an address a line.
inline constexpr std::string_view kRegisterLibrary = "registers";
std::string answer_register_call(const HostFs& host, std::string_view request);

}  // namespace ferry::vfio
