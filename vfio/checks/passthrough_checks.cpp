// SPDX-License-Identifier: Apache-2.0
#include "vfio/checks/passthrough_checks.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "vfio/registers/chip.h"

namespace ferry::vfio {
namespace {

Check accelerators_check(const Inventory& inventory, const AcceleratorRules& rules,
                         const std::vector<PciAddress>& accelerators) {
  Check check{"accelerators-present", kHostSubject, "without one there is nothing to give to a VM"};
  std::vector<std::string> by_name;
  for (const auto& [address, function] : inventory.functions) {
    if (rules.only_by_name(function))
      by_name.push_back(fmt::format("{} ({}, {})", address.text(), kind_of(function), function.ids()));
  }
  const std::string others =
      by_name.empty() ? std::string()
                      : fmt::format("; counted only where they are named: {}", fmt::join(by_name, ", "));
  if (accelerators.empty() && !by_name.empty())
    return std::move(check).passed(fmt::format("none of {} in /sys/bus/pci/devices{}", rules.whose, others));
  if (accelerators.empty()) {
    return std::move(check).warned(
        "none of the functions in /sys/bus/pci/devices is an accelerator",
        "see whether `lspci` has the card; one that is missing there was not found by the firmware");
  }
  return std::move(check).passed(fmt::format("{} in /sys/bus/pci/devices{}", accelerators.size(), others));
}

// Accelerators have a check of their own, so this one covers functions that are not recognised as one.
Check functions_check(const Inventory& inventory, const AcceleratorRules& rules) {
  Check check{"pci-functions-readable", kHostSubject,
              "what cannot be read may be an accelerator, or stand in the way of one"};
  std::vector<std::string> problems;
  for (const auto& [address, function] : inventory.functions) {
    if (function.problem && !rules.match(function))
      problems.push_back(fmt::format("{}: {}", address.text(), function.problem->message));
  }
  if (problems.empty()) {
    return std::move(check).passed("/sys/bus/pci/devices has " +
                                   counted(inventory.functions.size(), "function"));
  }
  constexpr std::size_t kMostNamed = 3;
  std::string text = fmt::format("{} cannot be read", problems.size());
  for (std::size_t i = 0; i < std::min(problems.size(), kMostNamed); ++i) text += "; " + problems[i];
  return std::move(check).unknown(std::move(text), "run as root; a device off the bus needs a cold start");
}

// Source: NVIDIA's k8s-cc-manager (785d77e), which writes it while it runs.
constexpr const char* kCcManagerReadiness = "run/nvidia/validations/.cc-manager-ctr-ready";

void append(std::vector<Check>& to, std::vector<Check> more) {
  std::ranges::move(more, std::back_inserter(to));
}

}  // namespace

std::vector<Check> passthrough_checks(const HostFs& host, const Inventory& inventory,
                                      const AcceleratorRules& rules, const GpuFindings& findings) {
  std::vector<PciAddress> accelerators;
  for (const auto& [address, function] : inventory.functions)
    if (rules.match(function)) accelerators.push_back(address);
  const auto command_line = KernelCommandLine::read(host);
  std::vector<Check> out = checks::of_isolation(host, inventory, rules, command_line);
  append(out, checks::of_vfio_setup(host, inventory, accelerators, command_line));
  out.push_back(functions_check(inventory, rules));
  out.push_back(accelerators_check(inventory, rules, accelerators));
  for (const PciAddress& address : accelerators) {
    const PciFunction& function = *inventory.find(address);
    const DeviceFacts facts = read_device_facts(host, address);
    if (const auto judged = findings.find(address); judged != findings.end())
      append(out, checks::of_rules(inventory, rules, function, judged->second));
    out.push_back(checks::bridge_check(host, inventory, function));
    out.push_back(checks::console_check(host, function));
    append(out, checks::of_condition(host, function, facts));
    out.push_back(checks::bar_size_check(host, function, facts));
    out.push_back(checks::rom_check(function, facts));
  }
  for (const auto& [address, of_function] : findings) {
    const PciFunction* const function = inventory.find(address);
    if (function == nullptr || rules.match(*function) || !on_vfio_driver(*function)) continue;
    append(out, checks::of_rules(inventory, rules, *function, of_function));
  }
  return out;
}

std::optional<Check> cc_manager_check(const HostFs& host, const Inventory& inventory,
                                      const GpuFindings& findings) {
  if (!host.exists(kCcManagerReadiness)) return std::nullopt;
  std::vector<std::string> in_use;
  for (const auto& [address, of_gpu] : findings) {
    const PciFunction* const gpu = inventory.find(address);
    if (gpu == nullptr || gpu->vendor != kNvidia || !gpu_chip(gpu->device)) continue;
    const bool used = std::ranges::any_of(of_gpu, [](const Finding& finding) {
      return finding.rule == RuleId::in_use && finding.answer == Answer::yes;
    });
    if (used) in_use.push_back(address.text());
  }
  Check check{"cc-manager", kHostSubject,
              "NVIDIA's CC manager resets every GPU of Hopper and newer for a change of its mode"};
  if (in_use.empty()) return std::move(check).passed("it runs, and no GPU with such a mode is in use");
  return std::move(check).warned(
      fmt::format("it runs, and these GPUs are in use: {}; a change of the Node's label nvidia.com/cc.mode "
                  "would reset them",
                  fmt::join(in_use, ", ")),
      "do not change that label before the VMs have ended, or set nvidia.com/gpu.deploy.cc-manager=false");
}

}  // namespace ferry::vfio
