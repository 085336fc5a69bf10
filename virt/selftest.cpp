// SPDX-License-Identifier: Apache-2.0
#include "virt/selftest.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include <fmt/format.h>

#include "mdev/mdev_bus.h"
#include "vfio/pci/inventory.h"
#include "virt/connection.h"
#include "virt/domain.h"
#include "virt/guest_console.h"

namespace ferry::virt {

std::vector<SelftestDevice> match_guest(const std::vector<ExpectedDevice>& expected,
                                        const std::vector<GuestDevice>& guest) {
  std::vector<SelftestDevice> out;
  out.reserve(expected.size());
  for (const auto& [device, ids, exact] : expected)
    out.push_back({.device = device, .host_ids = ids, .seen_as = {}});
  std::vector<bool> taken(guest.size(), false);
  // Exact devices choose first: a whole GPU must not be taken for a vGPU of its vendor.
  for (const bool exact : {true, false}) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i].exact != exact) continue;
      for (std::size_t j = 0; j < guest.size() && !out[i].seen_as; ++j) {
        const bool same =
            exact ? guest[j].ids == expected[i].ids : guest[j].ids.vendor == expected[i].ids.vendor;
        if (taken[j] || !same) continue;
        taken[j] = true;
        out[i].seen_as = guest[j].address;
      }
    }
  }
  return out;
}

namespace {

PciIds ids_of(const vfio::PciFunction& function) {
  return {.vendor = function.vendor,
          .device = function.device,
          .subsystem_vendor = function.subsystem_vendor.value_or(0),
          .subsystem_device = function.subsystem_device.value_or(0)};
}

Result<> add_function(const HostFs& host, const vfio::PciAddress& address, HostDevices& found) {
  auto read = vfio::read_function(host, address);
  if (!read) return fail(std::move(read).error());
  const vfio::PciFunction& function = *read;
  if (function.problem) return fail(Error(*function.problem).during(address.text()));
  if (!vfio::on_vfio_driver(function)) {
    return fail(Errc::refused,
                fmt::format("{} is {}, not on a vfio driver", address.text(),
                            function.driver ? "on driver " + *function.driver : "on no driver"),
                "bind its group first: ferry vfio bind --device " + address.text());
  }
  found.pci.push_back(address);
  found.expected.push_back({.device = address.text(), .ids = ids_of(function), .exact = true});
  return {};
}

Result<> add_mdev(const HostFs& host, const mdev::VgpuId& id, HostDevices& found) {
  auto bus = mdev::read_mdev_bus(host);
  if (!bus) return fail(std::move(bus).error());
  const auto device = std::ranges::find(bus->devices, id, &mdev::VgpuDevice::id);
  if (device == bus->devices.end()) {
    return fail(Errc::not_found, "there is no mediated device " + id.text,
                "ferry status lists the vGPUs of this host");
  }
  auto parent = vfio::read_function(host, device->parent);
  if (!parent) return fail(std::move(parent).error());
  found.mdev.push_back(id.text);
  found.expected.push_back({.device = id.text, .ids = ids_of(*parent), .exact = false});
  return {};
}

}  // namespace

Result<HostDevices> find_host_devices(const HostFs& host, const std::vector<std::string>& devices) {
  if (devices.empty()) return fail(Errc::usage, "no device was named", "name one with --device");
  HostDevices found;
  for (const std::string& word : devices) {
    const auto id = mdev::parse_mdev_uuid(word);
    const auto address = vfio::PciAddress::parse(word);
    if (!id && !address) {
      return fail(
          Errc::usage, fmt::format("'{}' is neither a PCI address nor the UUID of a mediated device", word),
          address.error().hint.empty() ? "a PCI address looks like 0000:3b:00.0" : address.error().hint);
    }
    const std::string name = id ? id->text : address->text();
    if (std::ranges::find(found.expected, name, &ExpectedDevice::device) != found.expected.end())
      return fail(Errc::usage, name + " is named twice", "name each device once");
    auto added = id ? add_mdev(host, *id, found) : add_function(host, *address, found);
    if (!added) return fail(std::move(added).error());
  }
  return found;
}

namespace {

using Clock = std::chrono::steady_clock;

// A VM that is destroyed with its handle.
struct DestroyDomain {
  void operator()(virDomain* domain) const {
    ::virDomainDestroy(domain);  // fails if the VM has ended by itself, which is fine
    ::virDomainFree(domain);
  }
};
using RunningDomain = std::unique_ptr<virDomain, DestroyDomain>;

Result<> must_be_file(const HostFs& host, const std::string& path, const char* what) {
  const std::filesystem::path file(path);
  if (!file.is_absolute()) {
    return fail(Errc::usage, fmt::format("{} '{}' is no absolute path", what, path),
                "libvirt's daemon has another working directory");
  }
  if (!host.exists(file.relative_path())) {
    return fail(Errc::not_found, fmt::format("{} {} does not exist", what, path),
                "it must lie on the host that libvirt runs on");
  }
  return {};
}

GuestAccelerator choose(GuestAccelerator asked, const Connection& connection) {
  if (asked != GuestAccelerator::automatic) return asked;
  return has_kvm(connection) ? GuestAccelerator::kvm : GuestAccelerator::tcg;
}

// Unique on the machine, not only in the process: two tests may run from two containers.
std::string unique_name() {
  return fmt::format("ferry-selftest-{:08x}", std::random_device()());
}

}  // namespace

Result<SelftestReport> selftest(HostFs& host, const std::string& uri, const SelftestOptions& options) {
  const auto until = Clock::now() + options.timeout;
  auto devices = find_host_devices(host, options.devices);
  if (!devices) return fail(std::move(devices).error());
  if (auto ok = must_be_file(host, options.kernel, "kernel"); !ok) return fail(std::move(ok).error());
  if (auto ok = must_be_file(host, options.initrd, "initrd"); !ok) return fail(std::move(ok).error());
  auto connection = connect(host, uri, Access::full);
  if (!connection) return fail(std::move(connection).error());

  SelftestReport report;
  report.domain = unique_name();
  report.accelerator = choose(options.accelerator, *connection);
  auto socket = ConsoleSocket::listen(host, report.domain);
  if (!socket) return fail(std::move(socket).error());

  // A panic must end the VM, and with it the wait. Under emulation on a busy machine timer interrupts come
  // too late for the kernel's check of them, and without no_timer_check it would panic.
  const std::string xml =
      domain_xml({.name = report.domain,
                  .accelerator = report.accelerator,
                  .memory_mib = options.memory_mib,
                  .kernel = options.kernel,
                  .initrd = options.initrd,
                  .kernel_arguments = "console=ttyS0 quiet panic=-1 no_timer_check ferry.selftest=1",
                  .console_socket = socket->path(),
                  .pci = devices->pci,
                  .mdev = devices->mdev});
  const auto started = Clock::now();
  const RunningDomain domain(
      ::virDomainCreateXML(connection->get(), xml.c_str(), VIR_DOMAIN_START_AUTODESTROY));
  if (!domain) {
    Error error = libvirt_error(Errc::failed, "start the test VM " + report.domain);
    error.hint = "ferry status shows who uses a device; libvirt's own log has more";
    return fail(std::move(error));
  }

  GuestConsole console;
  if (auto ready = socket->read_until_ready(console, until); !ready)
    return fail(std::move(ready).error().during("test VM " + report.domain));
  report.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  report.guest = console.devices();
  report.devices = match_guest(devices->expected, report.guest);
  return report;
}

}  // namespace ferry::virt
