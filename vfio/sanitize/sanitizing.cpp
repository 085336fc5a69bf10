// SPDX-License-Identifier: Apache-2.0
#include "vfio/sanitize/sanitizing.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <linux/vfio.h>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "common/text/json.h"
#include "common/text/json_fields.h"
#include "common/unique_fd.h"
#include "hostfs/check_reading.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_function.h"
#include "vfio/registers/reading_record.h"
#include "vfio/registers/register_access.h"
#include "vfio/registers/register_reading.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {

// The child's answer.
template <typename Io, SameAs<Sanitizing> Value>
void fields(Io& io, Value& reset) {
  io("in_use", reset.in_use);
  io("method", reset.method);
  io("problem", reset.problem);
}

namespace {

// A register raises no event when its value changes.
constexpr std::chrono::milliseconds kPause{100};

// ABI: linux/vfio.h; Documentation/driver-api/vfio.rst.
class KernelGroups final : public GroupCalls {
 public:
  explicit KernelGroups(const HostFs& host) : host_(host) {}

  Result<> hold(std::uint32_t group) override {
    for (const std::string& name : group_node_names(group)) {
      auto node = host_.open("dev/vfio/" + name, O_RDWR);
      if (!node && is_gone(node.error())) continue;
      if (!node) return fail(std::move(node).error());
      // Before Linux 5.19 a hot reset takes a group only with a container. If this fails, so does the reset.
      if (container_.valid()) (void)attach(*node);
      groups_.insert_or_assign(group, std::move(*node));
      return {};
    }
    return fail(Errc::not_found, fmt::format("group {} has no node in /dev/vfio", group));
  }

  Result<std::vector<TouchedFunction>> open_and_list(const PciAddress& function,
                                                     std::uint32_t group) override {
    auto container = host_.open("dev/vfio/vfio", O_RDWR);
    if (!container) return fail(std::move(container).error());
    container_ = std::move(*container);
    const int node = groups_.at(group).get();
    if (!attach(groups_.at(group))) return failed("attach its group to a container");
    if (::ioctl(container_.get(), VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0 &&
        ::ioctl(container_.get(), VFIO_SET_IOMMU, VFIO_TYPE1_IOMMU) != 0)
      return failed("set the container's IOMMU");
    function_ = UniqueFd(::ioctl(node, VFIO_GROUP_GET_DEVICE_FD, function.text().c_str()));
    if (!function_.valid()) return failed("open the function");

    // The buffer has the words argsz, flags and count of vfio_pci_hot_reset_info, and then its devices. The
    // kernel sets `count` also where it finds the buffer too small.
    constexpr std::size_t kHead = 3;
    constexpr std::size_t kEach = sizeof(vfio_pci_dependent_device) / sizeof(std::uint32_t);
    std::vector<std::uint32_t> words(kHead);
    for (;;) {
      words.front() = static_cast<std::uint32_t>(words.size() * sizeof(std::uint32_t));
      if (::ioctl(function_.get(), VFIO_DEVICE_GET_PCI_HOT_RESET_INFO, words.data()) == 0) break;
      const std::size_t needed = kHead + words[2] * kEach;
      if (errno != ENOSPC || needed <= words.size()) return failed("ask for the functions of a hot reset");
      words.resize(needed);
    }
    std::vector<TouchedFunction> out(std::min<std::size_t>(words[2], (words.size() - kHead) / kEach));
    for (std::size_t i = 0; i < out.size(); ++i) {
      vfio_pci_dependent_device device{};
      std::memcpy(&device, &words[kHead + i * kEach], sizeof device);
      out[i] = {.address = {.domain = device.segment,
                            .bus = device.bus,
                            .device = static_cast<std::uint8_t>(device.devfn >> 3U),
                            .function = static_cast<std::uint8_t>(device.devfn & 7U)},
                .group = device.group_id};
    }
    return out;
  }

  Result<> hot_reset() override {
    std::vector<std::uint32_t> words = {0, 0, static_cast<std::uint32_t>(groups_.size())};
    for (const UniqueFd& node : groups_ | std::views::values)
      words.push_back(static_cast<std::uint32_t>(node.get()));
    words.front() = static_cast<std::uint32_t>(words.size() * sizeof(std::uint32_t));
    if (::ioctl(function_.get(), VFIO_DEVICE_PCI_HOT_RESET, words.data()) != 0) return failed("hot reset");
    return {};
  }

  void close_function() override { function_.reset(); }

 private:
  static tl::unexpected<Error> failed(std::string_view what) { return fail(error_from_errno(errno, what)); }

  bool attach(const UniqueFd& node) const {
    const int container = container_.get();
    return ::ioctl(node.get(), VFIO_GROUP_SET_CONTAINER, &container) == 0;
  }

  const HostFs& host_;
  std::map<std::uint32_t, UniqueFd> groups_;
  UniqueFd container_;
  UniqueFd function_;  // closed first
};

/// The outcome of one reading. If a later one may say more, this one counts at the deadline alone.
struct Verdict {
  bool last = true;
  bool in_use = false;
  std::string problem = {};
  std::string unproven = {};
};

Verdict judge(const RegisterFacts& facts) {
  if (facts.in_use) return {.in_use = true, .unproven = facts.problem};
  if (!facts.problem.empty()) {
    // Registers that could be mapped and read as errors show a fault. They read so for a while after a reset.
    if (!facts.chip.empty()) return {.last = false, .problem = facts.problem};
    return {.last = facts.problem == kLockedDown, .unproven = facts.problem};
  }
  // While it boots, the bits of the recovery mode may have any value.
  if (facts.recovery.value_or(false)) return {.last = false, .problem = "its firmware is in recovery mode"};
  if (!facts.booted.value_or(false)) return {.last = false, .problem = "it has not booted"};
  if (facts.scrubbed && !*facts.scrubbed)
    return {.last = false, .problem = "its memory has not been cleared"};
  if (facts.scrubbed) return {};
  const auto why = std::ranges::find(facts.unknown, "scrubbed", &UnknownFact::fact);
  return {.last = facts.cc_mode == CcMode::on || facts.ppcie.value_or(false),
          .unproven = why == facts.unknown.end() ? "the chip does not show whether its memory is cleared"
                                                 : why->reason};
}

// Waits until the registers prove that the GPU has booted and that its memory was cleared.
void prove(HostWriter& writer, const PciAddress& gpu, std::chrono::milliseconds deadline, Sanitizing& out) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  Verdict verdict;
  for (;;) {
    RegisterReading reading = read_registers(writer, std::span(&gpu, 1));
    out.registers = reading.functions.empty() ? RegisterFacts{.problem = "its registers were not read"}
                                              : std::move(reading.functions.front().registers);
    verdict = judge(*out.registers);
    if (verdict.last || std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(kPause);
  }
  out.in_use = verdict.in_use;
  out.unproven = std::move(verdict.unproven);
  if (!verdict.problem.empty())
    out.problem = fmt::format("{}: {}, {:g} s after the reset", gpu.text(), verdict.problem,
                              std::chrono::duration<double>(deadline).count());
}

}  // namespace

std::string answer_sanitize_call(const HostFs& host, std::string_view request) {
  Sanitizing out;
  if (const auto address = PciAddress::parse(request)) {
    HostFs writable(host.root());
    KernelGroups groups(host);
    out = reset_function(writable, *address, groups);
  } else {
    out.problem = address.error().message;
  }
  return json_text(written_fields(out));
}

Sanitizing sanitize(HostWriter& writer, const HostFs& host, const PciAddress& gpu,
                    std::chrono::milliseconds deadline, std::chrono::milliseconds reset_deadline) {
  const LibraryCall call{.name = std::string(kSanitizeLibrary),
                         .request = gpu.text(),
                         .device = gpu.text(),
                         .changes = true,
                         .what = "reset " + gpu.text()};
  const auto answer = writer.call(call, reset_deadline);
  if (!answer) return {.problem = answer.error().message};
  auto reset = read_document(*answer, call.what, "", read_fields<Sanitizing>);
  if (!reset) return {.problem = reset.error().message};
  Sanitizing out = std::move(*reset);
  if (!out.is_reset()) return out;

  const auto function = read_function(host, gpu);
  const bool known = function && function->vendor == kNvidia && !function->is_virtual_function() &&
                     gpu_chip(function->device);
  // Another method may leave the register as it was.
  const bool resets_chip = out.method == kHotReset || out.method == "flr" || out.method == "bus";
  if (known)
    prove(writer, gpu, deadline, out);
  else
    out.unproven = "the registers of this GPU are not known";
  if (known && out.is_proven() && !resets_chip)
    out.unproven = fmt::format("the method {} may not reset the whole chip", out.method);
  if (out.is_proven() || !out.problem.empty()) return out;

  // Without a proof the function must at least be there, and answer.
  const auto after = read_function(host, gpu);
  if (!after)
    out.problem = fmt::format("{}: {}", gpu.text(), after.error().message);
  else if (after->bus == BusLook::all_ones && after->problem)
    out.problem = fmt::format("{}: {}", gpu.text(), after->problem->message);
  return out;
}

namespace {

constexpr const char* kNoMethod = "the kernel knows no method to reset it";

// The kernel demands that each function that a hot reset touches is on a vfio driver, and that a given group
// has each one that is open. A function that is closed at that moment may still be a VM's. So all groups are
// held. False: it is not possible, or another group that it reaches is in use.
// Source: drivers/vfio/pci/vfio_pci_core.c, vfio_pci_dev_set_hot_reset().
bool try_hot_reset(const HostFs& host, const PciAddress& address, std::uint32_t group, GroupCalls& calls) {
  const auto touched = calls.open_and_list(address, group);
  if (!touched) return false;
  std::set<std::uint32_t> others;
  for (const TouchedFunction& one : *touched) {
    const auto function = read_function(host, one.address);
    if (!function || !on_vfio_driver(*function)) return false;
    if (one.group != group) others.insert(one.group);
  }
  for (const std::uint32_t other : others)
    if (!calls.hold(other)) return false;
  return calls.hot_reset().has_value();
}

// ABI: sysfs `reset` and `reset_method`, drivers/pci/pci.c and pci-sysfs.c. Neither file is there if the
// kernel has no method. Before Linux 5.15 it did not name them. ENOTTY: it has tried all, and none was
// possible. Such is the method "bus" of a function that shares its bus.
Result<std::string> reset_by_sysfs(HostFs& host, const PciAddress& address) {
  const std::string methods = host.read_attribute(sysfs_path(address) / "reset_method").value_or("reset");
  std::string_view rest = methods;
  const std::string first(cut(rest, ' '));
  if (first.empty()) return fail(Errc::unsupported, kNoMethod);
  auto written = host.write_attribute(sysfs_path(address) / "reset", "1");
  if (written) return first;
  if (is_gone(written.error())) return fail(Errc::unsupported, kNoMethod);
  if (written.error().code == std::errc::inappropriate_io_control_operation)
    return fail(Errc::failed, fmt::format("none of the kernel's methods ({}) can reset it", methods));
  return fail(std::move(written).error());
}

}  // namespace

Sanitizing reset_function(HostFs& host, const PciAddress& address, GroupCalls& calls) {
  const auto faulty = [&](std::string_view why) {
    return Sanitizing{.problem = fmt::format("reset {}: {}", address.text(), why)};
  };
  const auto function = read_function(host, address);
  if (!function) return faulty(function.error().message);
  if (function->driver != "vfio-pci")
    return faulty(fmt::format("it is on {}, not on vfio-pci",
                              function->driver ? "driver " + *function->driver : "no driver"));
  if (function->sriov_numvfs > 0)
    return faulty(fmt::format("it has {} virtual functions", function->sriov_numvfs));
  if (function->problem && function->bus != BusLook::asleep) return faulty(function->problem->message);

  const auto group = function->iommu_group;
  if (!group) return faulty("it has no IOMMU group, so a VM could open it meanwhile");
  const auto held = calls.hold(*group);
  if (!held && held.error().code == std::errc::device_or_resource_busy) return {.in_use = true};
  if (!held)
    return faulty(fmt::format("its IOMMU group cannot be held, so a VM could open it meanwhile: {}",
                              held.error().message));
  const bool is_hot = try_hot_reset(host, address, *group, calls);
  calls.close_function();
  if (is_hot) return {.method = kHotReset};
  auto method = reset_by_sysfs(host, address);
  if (!method) return faulty(method.error().message);
  return {.method = std::move(*method)};
}

}  // namespace ferry::vfio
