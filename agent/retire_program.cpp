// SPDX-License-Identifier: Apache-2.0
#include "agent/retire_program.h"

#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "agent/retirement.h"
#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/hidden_process.h"
#include "common/log.h"
#include "common/standard_streams.h"
#include "common/stop_on_signal.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"

namespace ferry {
namespace {

struct Command {
  std::string daemon_set;
  std::string space;
  unsigned seconds = 240;
  std::filesystem::path kubeconfig;
  std::string context;
};

Result<> retire(const Command& command, const std::stop_token& stop) {
  auto access =
      cluster_access({.kubeconfig = command.kubeconfig, .context = command.context}, process_environment());
  if (!access) return fail(std::move(access).error());
  std::string space = command.space.empty() ? access->default_namespace : command.space;
  if (space.empty())
    return fail(Errc::usage, "nobody says in which namespace the DaemonSet is", "name it: --namespace");
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  LoopTimers timers(**loop);
  CurlTransport transport(**loop, std::move(*access));
  std::mt19937_64 generator(std::random_device{}());
  const Random random = [&generator] { return std::uniform_real_distribution<double>(0, 1)(generator); };
  ApiClient client(transport, timers, random);
  std::stop_source over;
  const std::stop_callback told_to_end(stop, [&over] { over.request_stop(); });
  Result<> outcome =
      fail(Errc::stuck, "told to end before the agents had", "`helm uninstall` can be repeated");
  Retirement retirement(transport, client, timers, random,
                        {.kind = kDaemonSets, .space = std::move(space), .name = command.daemon_set},
                        std::chrono::seconds(command.seconds), [&](Result<> how) {
                          outcome = std::move(how);
                          over.request_stop();
                        });
  if (auto begun = retirement.begin(); !begun) return begun;
  (*loop)->run(over.get_token());
  return outcome;
}

}  // namespace

int retire_program(int argc, char** argv) {
  CLI::App app(
      "Removes the agents' DaemonSet and waits until their pods have ended: each lets come back whom it "
      "keeps away.",
      "ferry-agent retire");
  Command command;
  app.add_option("--daemon-set", command.daemon_set, "its name")->required();
  app.add_option("--namespace", command.space, "and its namespace; else that of the context or the pod");
  app.add_option("--seconds", command.seconds, "how long it waits")
      ->check(CLI::Range(1U, 86'400U))
      ->capture_default_str();
  app.add_option("--kubeconfig", command.kubeconfig, "how to reach the API server");
  app.add_option("--context", command.context, "the context of that file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    print_to_stderr("ferry-agent retire: {}\n", error.what());
    return static_cast<int>(ExitStatus::usage);
  }
  hide_process();  // it has a token for the API server
  const StopOnSignal stop;
  const auto logs = set_up_log("info", LogFormat::text);
  const auto done = logs ? retire(command, stop.token()) : logs;
  if (done) return static_cast<int>(ExitStatus::done);
  print_to_stderr("ferry-agent retire: {}\n", done.error().message);
  if (!done.error().hint.empty()) print_to_stderr("hint: {}\n", done.error().hint);
  return static_cast<int>(exit_status_of(done.error()));
}

}  // namespace ferry
