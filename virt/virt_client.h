// SPDX-License-Identifier: Apache-2.0
// Access to libvirt through another program, `ferry-virt`, which gives one answer before a deadline. Loading
// libvirt costs tens of milliseconds and megabytes, and its daemon may hang: neither may affect the caller.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "virt/domain.h"

namespace ferry::virt {

// The answer that ferry-virt prints on stdout and its client reads: a single JSON object.
//
//   {"domains":[{"name":"a","uuid":"…","pid":412,"pci":["0000:01:00.0"],"mdev":["…"]}]}
//   {"error":{"code":"unreachable","message":"…","hint":"…"}}

std::string answer_text(const std::vector<Domain>& domains);
std::string answer_text(const Error& error);

/// Reads an answer. An error in it is returned as that error; an unreadable answer is Errc::malformed_host.
Result<std::vector<Domain>> read_domains_answer(std::string_view text);

/// The program to ask, and the libvirt that it connects to.
struct VirtHelper {
  std::filesystem::path program;          ///< `ferry-virt`: a path, or a bare name that PATH finds
  std::filesystem::path host_root = "/";  ///< HostFs::root() of the host that libvirtd runs on
  std::string uri = {};                   ///< libvirt connection URI; empty: the system's own daemon
};

/// A healthy libvirtd answers in milliseconds.
inline constexpr std::chrono::milliseconds kDomainsDeadline{2000};

/// The running domains. Errc::unreachable: no such program, or libvirt does not answer by the deadline
/// (ferry-virt is ended then; it holds no lock and writes nothing). Errc::malformed_host: the answer cannot
/// be read.
Result<std::vector<Domain>> running_domains(const VirtHelper& helper,
                                            std::chrono::milliseconds deadline = kDomainsDeadline);

}  // namespace ferry::virt
