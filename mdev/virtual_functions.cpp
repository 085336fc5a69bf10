// SPDX-License-Identifier: Apache-2.0
#include "mdev/virtual_functions.h"

#include <algorithm>
#include <array>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/kernel_facts.h"
#include "vfio/pci/pci_function.h"

namespace ferry::mdev {
namespace {

constexpr const char* kTool = "usr/lib/nvidia/sriov-manage";
constexpr int kMostTries = 5;
constexpr std::chrono::seconds kBetweenTries{1};

constexpr const char* kOpenHint =
    "whatever has the GPU open (nvidia-persistenced, DCGM, nvidia-smi, a CUDA program) keeps its driver from "
    "it: stop that; the kernel's log says more";

// Hint after EPERM: the tool is below another root, or the driver takes virtual functions from NVIDIA's tool
// only, and hostd in a container does not see that tool.
constexpr const char* kRightHint =
    "NVIDIA's sriov-manage takes CAP_SYS_CHROOT where hostd is in a container, and the host's root: "
    "hostd.hostTools of the chart";

constexpr const char* kBindHint =
    "its address, written to `bind` of the driver in /sys/bus/pci/drivers, binds it; the kernel's log says "
    "more";

/// `sriov-manage -e ADDRESS` (or -d) of the host or of a driver container's root; absent: neither has it.
std::optional<HostCommand> sriov_tool(const HostFs& host, const vfio::PciAddress& gpu, bool on) {
  for (const char* root : std::array{"", "run/nvidia/driver"}) {
    if (!host.exists(std::filesystem::path(root) / kTool)) continue;
    return HostCommand{.root = root,
                       .words = {std::string("/") + kTool, on ? "-e" : "-d", gpu.text()},
                       .device = gpu.text()};
  }
  return std::nullopt;
}

// Counts links: reading sriov_numvfs takes the device's lock, which a hanging driver keeps.
Result<std::uint32_t> count_vfs(const HostFs& host, const vfio::PciAddress& gpu) {
  auto names = host.list(vfio::sysfs_path(gpu));
  if (!names) return fail(std::move(names).error());
  return static_cast<std::uint32_t>(
      std::ranges::count_if(*names, [](const std::string& name) { return name.starts_with("virtfn"); }));
}

// The tool unbinds the GPU from its driver and binds it again, and may fail in between. This function then
// binds the GPU, so that it does not stay without a driver.
Result<> bind_as_before(const VfSwitch& on, const vfio::PciAddress& gpu, const std::string& driver) {
  const auto link = vfio::sysfs_path(gpu) / "driver";
  auto now = on.host.link_name(link);
  if (!now && is_gone(now.error())) {
    auto bound = on.writer.write(std::filesystem::path("sys/bus/pci/drivers") / driver / "bind", gpu.text(),
                                 on.deadline);
    if (!bound && bound.error().code == Errc::stuck) return bound;
    now = on.host.link_name(link);
    if (!now && !bound) return fail(Error(bound.error()).during("it was left without its driver"));
  }
  if (now && *now == driver) return {};
  return fail(Errc::failed,
              fmt::format("it was left {} instead of on {}", now ? "on " + *now : "without a driver", driver),
              kBindHint);
}

Result<> write_number(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t number) {
  return on.writer.write(vfio::sysfs_path(gpu) / "sriov_numvfs", std::to_string(number), on.deadline);
}

// Returns the final number of virtual functions. A partly enabled set is not tried again. A try that enabled
// none, or left some to disable, may have met a process that had the GPU open for a moment.
Result<std::uint32_t> switch_to(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t count) {
  const bool with_tool = sriov_tool(on.host, gpu, count > 0).has_value();
  const auto driver = on.host.link_name(vfio::sysfs_path(gpu) / "driver");
  for (int attempt = 1;; ++attempt) {
    const auto tool = sriov_tool(on.host, gpu, count > 0);
    auto done = tool ? on.writer.run(*tool, on.deadline) : write_number(on, gpu, count);
    if (!done && done.error().code == Errc::stuck) return fail(std::move(done).error());
    if (with_tool && driver) {
      if (auto bound = bind_as_before(on, gpu, *driver); !bound) return fail(std::move(bound).error());
    }
    auto now = count_vfs(on.host, gpu);
    if (!now || *now == count) return now;
    const bool in_part = count > 0 && *now > 0;
    const bool not_permitted = !done && done.error().code == std::errc::operation_not_permitted;
    if (with_tool && !in_part && !not_permitted && attempt < kMostTries) {
      on.pause(kBetweenTries);
      continue;
    }
    if (done || in_part) return now;
    if (done.error().hint.empty()) done.error().hint = not_permitted ? kRightHint : kOpenHint;
    return fail(std::move(done).error());
  }
}

}  // namespace

Result<> enable_vfs(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t total) {
  const auto now = switch_to(on, gpu, total);
  if (!now) return fail(now.error());
  if (*now >= total) return {};  // the tool enables all functions, which may be more
  if (*now == 0)
    return fail(Errc::failed, fmt::format("none of its {} came", counted(total, "virtual function")),
                kOpenHint);
  return fail(Errc::failed, fmt::format("only {} of {} came", *now, counted(total, "virtual function")),
              kOpenHint);
}

Result<> disable_vfs(const VfSwitch& on, const vfio::PciAddress& gpu) {
  const auto now = switch_to(on, gpu, 0);
  if (!now) return fail(now.error());
  if (*now == 0) return {};
  return fail(Errc::failed, fmt::format("{} stayed", counted(*now, "virtual function")), kOpenHint);
}

namespace {

constexpr const char* kDriverHint = "the GPU's driver decides how many it makes; the kernel's log says more";

std::filesystem::path autoprobe_path(const vfio::PciAddress& gpu) {
  return vfio::sysfs_path(gpu) / "sriov_drivers_autoprobe";
}

/// Holds the ID of the boot in which Ferry wrote a 0 for a 1.
std::filesystem::path memory_path(const vfio::PciAddress& gpu) {
  return std::filesystem::path("run/ferry/hostd/autoprobe") / gpu.text();
}

Result<> forget_autoprobe(HostFs& host, const vfio::PciAddress& gpu) {
  const std::filesystem::path memory = memory_path(gpu);
  if (!host.exists(memory)) return {};
  return host.remove_file(memory);
}

}  // namespace

std::optional<bool> read_autoprobe(const HostFs& host, const vfio::PciAddress& gpu) {
  const auto text = host.read_attribute(autoprobe_path(gpu));
  if (!text) return std::nullopt;
  return *text != "0";
}

bool autoprobe_was_left_off(const HostFs& host, const vfio::PciAddress& gpu) {
  const auto remembered = host.read_attribute(memory_path(gpu));
  return remembered && *remembered == boot_id(host).value_or("") && read_autoprobe(host, gpu) == false;
}

Result<> set_autoprobe(const VfSwitch& on, const vfio::PciAddress& gpu, bool probe) {
  auto done = on.writer.write(autoprobe_path(gpu), probe ? "1" : "0", on.deadline);
  if (!done || !probe) return done;
  return forget_autoprobe(on.host, gpu);
}

Result<> enable_bare_vfs(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t number,
                         bool for_host) {
  const bool probed = !for_host && read_autoprobe(on.host, gpu).value_or(false);
  if (probed) {
    const auto boot = boot_id(on.host);
    if (!boot) return fail(Error(boot.error()).during("remember sriov_drivers_autoprobe of " + gpu.text()));
    if (auto kept = on.host.write_file(memory_path(gpu), *boot + "\n"); !kept) return kept;
    auto off = set_autoprobe(on, gpu, false);
    if (!off && off.error().code != Errc::stuck) (void)forget_autoprobe(on.host, gpu);
    if (!off) return off;
  }
  auto done = write_number(on, gpu, number);
  // A write that has not returned keeps the GPU's lock: nothing more is written to the GPU.
  if (!done && done.error().code == Errc::stuck) return done;
  if (probed) {
    auto as_before = set_autoprobe(on, gpu, true);
    if (done && !as_before) return as_before;
  }
  if (!done) return done;
  const auto now = count_vfs(on.host, gpu);
  if (!now) return fail(now.error());
  if (*now == number) return {};
  return fail(Errc::failed, fmt::format("only {} of {} came", *now, counted(number, "virtual function")),
              kDriverHint);
}

Result<> disable_bare_vfs(const VfSwitch& on, const vfio::PciAddress& gpu) {
  if (auto done = write_number(on, gpu, 0); !done) return done;
  const auto now = count_vfs(on.host, gpu);
  if (!now) return fail(now.error());
  if (*now == 0) return {};
  return fail(Errc::failed, fmt::format("{} stayed", counted(*now, "virtual function")), kDriverHint);
}

}  // namespace ferry::mdev
