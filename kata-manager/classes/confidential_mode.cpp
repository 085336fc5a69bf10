// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/confidential_mode.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/labels.h"
#include "common/text/words.h"
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

namespace {

using State = ConfidentialMode::State;

constexpr Words<State, 5> kWritten = {{{"off", State::off},
                                       {"on", State::on},
                                       {"devtools", State::devtools},
                                       {"ppcie", State::ppcie},
                                       {"failed", State::failed}}};

std::string value_of(const std::map<std::string, std::string>& labels, const char* key) {
  const auto found = labels.find(key);
  return found == labels.end() ? std::string() : found->second;
}

}  // namespace

std::string_view text(State state) {
  return word_for(kWritten, state, "unknown");
}

std::optional<State> confidential_state(std::string_view text) {
  return value_for(kWritten, text);
}

ConfidentialMode ConfidentialMode::of_labels(const std::map<std::string, std::string>& labels) {
  ConfidentialMode out;
  out.of_a_node = true;
  if (const auto ready = labels.find(api::kCcReadyLabel); ready != labels.end()) out.ready = ready->second;
  out.asked_for = value_of(labels, api::kCcModeLabel);
  const std::string reached = value_of(labels, api::kCcModeStateLabel);
  if (const auto known = confidential_state(reached)) {
    out.state = *known;
  } else if (reached.empty()) {
    out.why_unknown =
        fmt::format("the node has no label {}, which NVIDIA's CC manager writes", api::kCcModeStateLabel);
  } else {
    out.why_unknown =
        fmt::format("the node's label {} is {}, which is no mode", api::kCcModeStateLabel, reached);
  }
  return out;
}

void ConfidentialMode::take_registers(const api::HostStatus& host) {
  std::map<std::string_view, std::vector<std::string>> gpus;  // by mode
  bool all_known = true;
  bool all_protected = true;
  for (const api::AcceleratorStatus& one : host.accelerators) {
    if (!one.counts_as_gpu()) continue;
    const std::string_view mode = one.registers ? one.registers->facts.mode() : std::string_view();
    all_known = all_known && !mode.empty();
    if (mode.empty()) continue;
    gpus[mode].push_back(one.address.text());
    all_protected = all_protected && (mode == "on" || mode == "ppcie");
  }
  // Registers of some GPUs say nothing of the others, which a pod may get.
  if (gpus.empty() || (all_protected && !all_known)) return;
  // "invalid" is no word of the labels.
  state = gpus.size() > 1 ? State::failed : confidential_state(gpus.begin()->first).value_or(State::failed);
  std::vector<std::string> found;
  for (const auto& [mode, of] : gpus)
    found.push_back(fmt::format("{} by the registers of {}", mode, fmt::join(of, ", ")));
  by_registers = fmt::format("{}", fmt::join(found, "; "));
}

std::string ConfidentialMode::text() const {
  std::string out(by_registers.empty() ? ferry::kata::text(state) : by_registers);
  if (!known()) out += ": " + why_unknown;
  if (!asked_for.empty() && asked_for != ferry::kata::text(state))
    out += fmt::format("; {} is asked for", asked_for);
  return out;
}

Result<> ConfidentialMode::admits(const KataClass& kata) const {
  if (!is_confidential(kata.kind) || !known() || state == State::on || state == State::ppcie) return {};
  return fail(
      Errc::unsupported,
      fmt::format("class {}: the mode of the GPUs for confidential computing is {}{}", kata.name, text(),
                  by_registers.empty() ? fmt::format(" ({})", api::kCcModeStateLabel) : ""),
      fmt::format("set the node's label {} to on, or ppcie for all GPUs of a board in one VM, and wait "
                  "until NVIDIA's CC manager has switched them; or leave the class to other nodes",
                  api::kCcModeLabel));
}

}  // namespace ferry::kata
