// SPDX-License-Identifier: Apache-2.0
// ferry-virt: the only program of Ferry that loads libvirt. It prints an answer as JSON on stdout, and
// messages on stderr.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "common/exit_status.h"
#include "common/process/standard_streams.h"
#include "common/version.h"
#include "virt/connection.h"
#include "virt/virt_client.h"

namespace ferry::virt {
namespace {

ExitStatus answer(const std::string& text, ExitStatus status) {
  const bool printed = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return printed ? status : ExitStatus::failed;
}

ExitStatus answer(const Error& error) {
  return answer(answer_text(error), print_error("ferry-virt", error));
}

int run(int argc, char** argv) {
  std::string host_root = "/";
  std::string uri;
  CLI::App app("Asks libvirt, for ferry, which running domains use a device.", "ferry-virt");
  app.set_version_flag("--version", std::string("ferry-virt ") + kVersion);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--host-root", host_root, "where the host's / is mounted")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--connect", uri, "libvirt connection URI (default: the host's qemu:///system)");

  app.add_subcommand("domains", "the running domains and the host devices they have");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitStatus::usage);
  }

  const HostFs host(host_root);
  const auto connection = connect(host, uri);
  if (!connection) return static_cast<int>(answer(connection.error()));
  const auto domains = list_running_domains(host, *connection);
  if (!domains) return static_cast<int>(answer(domains.error()));
  return static_cast<int>(answer(answer_text(*domains), ExitStatus::done));
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
