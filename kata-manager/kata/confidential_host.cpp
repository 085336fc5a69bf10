// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata/confidential_host.h"

#include <fmt/format.h>

#include "hostfs/check_reading.h"

namespace ferry::kata {
namespace {

constexpr const char* kSnp = "sys/module/kvm_amd/parameters/sev_snp";
constexpr const char* kTdx = "sys/module/kvm_intel/parameters/tdx";

Result<bool> is_on(const HostFs& host, const char* path) {
  auto on = read_switch(host, path);
  if (!on && is_gone(on.error())) return false;
  return on;
}

}  // namespace

Result<ConfidentialHost> ConfidentialHost::read(const HostFs& host) {
  const auto snp = is_on(host, kSnp);
  if (!snp) return fail(snp.error());
  const auto tdx = is_on(host, kTdx);
  if (!tdx) return fail(tdx.error());
  return ConfidentialHost{.snp = *snp, .tdx = *tdx};
}

std::string ConfidentialHost::text() const {
  if (snp) return "SEV-SNP";
  return tdx ? "TDX" : "neither SEV-SNP nor TDX";
}

Result<> ConfidentialHost::admits(const KataClass& kata) const {
  if (!is_confidential(kata.kind)) return {};
  const bool wants_snp = kata.kind == KataKind::snp;
  if (wants_snp ? snp : tdx) return {};
  return fail(
      Errc::unsupported,
      fmt::format("class {}: this host has {}: /{} is not on", kata.name, text(), wants_snp ? kSnp : kTdx),
      fmt::format("switch {} on in the firmware and in KVM, or leave the class to nodes that have it",
                  wants_snp ? "SEV-SNP" : "TDX"));
}

}  // namespace ferry::kata
