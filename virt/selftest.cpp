// SPDX-License-Identifier: Apache-2.0
#include "virt/selftest.h"

#include <filesystem>
#include <random>

#include <fmt/format.h>

#include "virt/connection.h"
#include "virt/domain.h"
#include "virt/guest_console.h"
#include "virt/host_devices.h"

namespace ferry::virt {
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
