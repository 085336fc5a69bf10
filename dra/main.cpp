// SPDX-License-Identifier: Apache-2.0
// ferry-dra, the program of `ferry dra` (docs/adr/0035). It is a program of its own, since `ferry` links no
// libcurl. This file may use all rooms.
#include <cstddef>
#include <filesystem>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/options/usage_fault.h"
#include "cli/output/help_text.h"
#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/process/signals.h"
#include "common/process/standard_streams.h"
#include "common/process/this_process.h"
#include "common/version.h"
#include "dra/dra_options.h"
#include "dra/dra_program.h"
#include "hostfs/host_fs.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"

namespace ferry::dra {
namespace {

struct DraCommand {
  DraProgramOptions options;
  std::filesystem::path host_root = "/";
  std::string log_level = "info";
  std::string log_format = "text";
};

void describe(CLI::App& app, DraCommand& command) {
  app.set_version_flag("--version", std::string("ferry ") + kVersion);
  add_dra_options(app, command.options);
  app.get_option("--node-name")->envname("NODE_NAME")->required();
  app.get_option("--pod-uid")->envname("POD_UID");
  app.add_option("--host-root", command.host_root, "the folder on which the root of the host is mounted")
      ->check(CLI::ExistingDirectory)
      ->option_text("DIR [/]");
  app.add_option("--log-level", command.log_level,
                 "the least severe messages to log: trace, debug, info, warn, error or off")
      ->option_text("LEVEL [info]");
  app.add_option("--log-format", command.log_format, "the format of the log: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->option_text("FORMAT [text]");
}

int complain(const Error& error) {
  print_to_stderr("ferry-dra: {}\n", error.message);
  if (!error.hint.empty()) print_to_stderr("hint: {}\n", error.hint);
  return static_cast<int>(exit_status_of(error));
}

Result<> serve(const DraProgramOptions& options, HostFs& host, const std::stop_token& stop) {
  auto access = kube::cluster_access({.kubeconfig = options.kubeconfig, .context = options.context},
                                     process_environment());
  if (!access) return fail(std::move(access).error());
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  kube::CurlTransport transport(**loop, std::move(*access));
  std::mt19937_64 generator(std::random_device{}());
  const kube::Random random = [&generator] {
    return std::uniform_real_distribution<double>(0, 1)(generator);
  };
  DraProgram program(**loop, host, transport, random, options);
  return program.run(stop);
}

}  // namespace
}  // namespace ferry::dra

int main(int argc, char** argv) {
  ferry::guard_standard_streams();
  CLI::App app("Publishes GPUs as ResourceSlices, and prepares the devices of ResourceClaims", "ferry dra");
  ferry::dra::DraCommand command;
  ferry::dra::describe(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return ferry::cli::print_help(app, help_or_version);
  } catch (const CLI::ParseError& error) {
    const std::span<char* const> words(argv, static_cast<std::size_t>(argc));
    const auto fault = ferry::cli::usage_fault(app, error, words, {.program = "ferry dra"});
    ferry::print_to_stderr("ferry dra: {}\nhint: {}\n", fault.message, fault.hint);
    return static_cast<int>(ferry::ExitStatus::usage);
  }
  const auto format = command.log_format == "json" ? ferry::LogFormat::json : ferry::LogFormat::text;
  if (auto log = ferry::set_up_log(command.log_level, format); !log) return ferry::dra::complain(log.error());
  ferry::hide_process();  // its memory has a token of the API server
  const ferry::StopOnSignal stop;
  ferry::HostFs host(command.host_root);
  if (auto served = ferry::dra::serve(command.options, host, stop.token()); !served)
    return ferry::dra::complain(served.error());
  return 0;
}
