// SPDX-License-Identifier: Apache-2.0
// libvirt as the rest of Ferry sees it: another program, `ferry-virt`, asked for one answer and given a
// deadline. Loading libvirt costs tens of milliseconds and megabytes, and its daemon may hang: neither is to
// happen in our own process.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"
#include "virt/domain.h"
#include "virt/selftest.h"

namespace ferry {

/// Where libvirt is asked.
struct VirtHelper {
  std::filesystem::path program;          ///< `ferry-virt`: a path, or a bare name that PATH finds
  std::filesystem::path host_root = "/";  ///< HostFs::root() of the host that libvirtd runs on
  std::string uri = {};                   ///< libvirt connection URI; empty: the system's own daemon
};

/// `ferry-virt` beside our own executable, else the bare name for PATH to find.
std::filesystem::path virt_program();

/// A healthy libvirtd answers in milliseconds.
inline constexpr std::chrono::milliseconds kDomainsDeadline{2000};

/// The running domains. Errc::unreachable: no such program, libvirt does not answer, or not by the deadline
/// (ferry-virt is killed then; it holds nothing). Errc::malformed_host: its answer cannot be read.
Result<std::vector<Domain>> running_domains(const VirtHelper& helper,
                                            std::chrono::milliseconds deadline = kDomainsDeadline);

/// Runs the test VM to its end and tells what it saw; whether that is enough says SelftestReport::passed().
/// The VM never outlives this call, however it ends. Errors as above, and: Errc::usage (a value of `options`
/// is wrong), Errc::not_found (no such device or file), Errc::failed (the VM does not start, or its guest
/// ended or said nothing in time).
Result<SelftestReport> run_selftest(const VirtHelper& helper, const SelftestOptions& options);

}  // namespace ferry
