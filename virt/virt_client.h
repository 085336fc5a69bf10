// SPDX-License-Identifier: Apache-2.0
// Access to libvirt through another program, `ferry-virt`, which gives one answer before a deadline. Loading
// libvirt costs tens of milliseconds and megabytes, and its daemon may hang: neither may affect the caller.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"
#include "virt/domain.h"
#include "virt/selftest.h"

namespace ferry::virt {

struct HelperOutput {
  std::string out;
  std::string err;
  int exit_status = 0;  ///< 128 + the signal's number if a signal ended it
};

/// Effect of a Ctrl-C on the terminal on a helper.
enum class OnCtrlC {
  ends,     ///< the helper ends and cleans up after itself
  goes_on,  ///< none: the caller may need the answer to finish its work (FinishOnSignal)
};

/// Runs a program to its end, with an empty stdin, both outputs collected and the caller's environment. A
/// name without '/' is looked up in PATH. After the deadline the program is killed: Errc::unreachable. So it
/// must hold no lock or other state of Ferry's, and never write to the host, as only HostWriter does.
Result<HelperOutput> run_helper(const std::filesystem::path& program,
                                const std::vector<std::string>& arguments, std::chrono::milliseconds deadline,
                                OnCtrlC on_ctrl_c = OnCtrlC::ends);

/// The program to ask, and the libvirt that it connects to.
struct VirtHelper {
  std::filesystem::path program;          ///< `ferry-virt`: a path, or a bare name that PATH finds
  std::filesystem::path host_root = "/";  ///< HostFs::root() of the host that libvirtd runs on
  std::string uri = {};                   ///< libvirt connection URI; empty: the system's own daemon
};

/// `ferry-virt` beside the running executable, else the bare name for PATH to find.
std::filesystem::path virt_program();

/// A healthy libvirtd answers in milliseconds.
inline constexpr std::chrono::milliseconds kDomainsDeadline{2000};

/// The running domains. Errc::unreachable: no such program, or libvirt does not answer by the deadline
/// (ferry-virt is killed then; it holds no lock). Errc::malformed_host: the answer cannot be read.
Result<std::vector<Domain>> running_domains(const VirtHelper& helper,
                                            std::chrono::milliseconds deadline = kDomainsDeadline);

/// Runs the test VM to its end and reports the devices that it saw; SelftestReport::passed() judges them. The
/// VM never outlives this call. Errors as above. Errc::usage: a value of `options` is wrong. Errc::not_found:
/// no such device or file. Errc::failed: the VM does not start, or its guest ends or is silent for too long.
Result<SelftestReport> run_selftest(const VirtHelper& helper, const SelftestOptions& options);

}  // namespace ferry::virt
