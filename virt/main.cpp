// SPDX-License-Identifier: Apache-2.0
// ferry-virt: the only program of Ferry that loads libvirt. It prints an answer as JSON on stdout, and
// messages on stderr.
#include <cstdio>
#include <map>

#include <CLI/CLI.hpp>

#include "common/exit_status.h"
#include "common/process/standard_streams.h"
#include "common/version.h"
#include "virt/answer.h"
#include "virt/connection.h"
#include "virt/selftest.h"

namespace ferry::virt {
namespace {

struct Options {
  std::string host_root = "/";
  std::string uri;
  SelftestOptions selftest;
  std::int64_t timeout_s = 120;
};

ExitStatus answer(const std::string& text, ExitStatus status) {
  const bool printed = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return printed ? status : ExitStatus::failed;
}

ExitStatus answer(const Error& error) {
  return answer(answer_text(error), print_error("ferry-virt", error));
}

ExitStatus run_domains(const Options& options) {
  const HostFs host(options.host_root);
  auto connection = connect(host, options.uri, Access::read_only);
  if (!connection) return answer(connection.error());
  const auto domains = list_running_domains(host, *connection);
  return domains ? answer(answer_text(*domains), ExitStatus::done) : answer(domains.error());
}

ExitStatus run_selftest(Options& options) {
  HostFs host(options.host_root);
  options.selftest.timeout = std::chrono::seconds(options.timeout_s);
  const auto report = selftest(host, options.uri, options.selftest);
  if (!report) return answer(report.error());
  return answer(answer_text(*report), report->passed() ? ExitStatus::done : ExitStatus::failed);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Asks libvirt, for ferry: which running domains use a device, and what a test VM sees.",
               "ferry-virt");
  app.set_version_flag("--version", std::string("ferry-virt ") + kVersion);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--host-root", options.host_root, "where the host's / is mounted")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--connect", options.uri, "libvirt connection URI (default: the host's qemu:///system)");

  const CLI::App* domains =
      app.add_subcommand("domains", "the running domains and the host devices they have");
  CLI::App* selftest =
      app.add_subcommand("selftest", "a throw-away VM that has the devices, seen from inside");
  selftest->add_option("--device", options.selftest.devices, "PCI address or mdev UUID; may be repeated")
      ->required();
  selftest->add_option("--kernel", options.selftest.kernel, "Linux kernel for the guest")->required();
  selftest
      ->add_option("--initrd", options.selftest.initrd, "initramfs that names the PCI devices on the console")
      ->required();
  selftest->add_option("--memory", options.selftest.memory_mib, "of the guest, in MiB")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  selftest->add_option("--timeout", options.timeout_s, "for the whole test, in seconds")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  selftest->add_option("--accel", options.selftest.accelerator, "auto, kvm or tcg")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, GuestAccelerator>{{"auto", GuestAccelerator::automatic},
                                                  {"kvm", GuestAccelerator::kvm},
                                                  {"tcg", GuestAccelerator::tcg}}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitStatus::usage);
  }
  return static_cast<int>(domains->parsed() ? run_domains(options) : run_selftest(options));
}

}  // namespace
}  // namespace ferry::virt

int main(int argc, char** argv) {
  ferry::guard_standard_streams();
  try {
    return ferry::virt::run(argc, argv);
  } catch (const std::exception& failure) {
    (void)std::fprintf(stderr, "ferry-virt: %s\n", failure.what());
    return static_cast<int>(ferry::ExitStatus::failed);
  }
}
