// SPDX-License-Identifier: Apache-2.0
// usage: agents-at-scale KUBECONFIG FOLDER COUNT [MOST]
// The agents of nodes n0, n1, ... in one process, each with its own connection to the API server and a folder
// of its own below FOLDER for its host. Until SIGTERM. With MOST each has what stands for hostd beside it, on
// which the policy "wrong" fails, and so many may change at once.
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/desired_state/written_policy.h"
#include "agent/node_agent.h"
#include "api/files.h"
#include "common/event_loop.h"
#include "common/process/signals.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"
#include "kube/timers.h"
#include "tests/agent/hostd_standin.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kPollPeriod{100};

struct Node {
  Node(EventLoop& loop, kube::Timers& its_timers, const kube::Random& random,
       const kube::ClusterAccess& access, const std::filesystem::path& folder, std::string name,
       std::optional<unsigned> most)
      : timers(its_timers),
        host(folder),
        transport(loop, access),
        agent(host, transport, timers, random, [] { return std::chrono::system_clock::now(); },
              {.node = std::move(name),
               .space = "ferry",
               .config_maps = {"ferry-policies", "ferry-vgpu-profiles"},
               .config_files = {},
               .operator_space = "gpu-operator",
               .defaults = {},
               .most_changing = most.value_or(0)}) {
    if (!most) return;
    hostd.emplace(timers, host, [this] { agent.host_changed(); });
    hostd->by_text = true;
    look();
  }
  void look() {
    const std::string now = host.read_file(api::kDesiredFile).value_or("");
    if (std::exchange(known_desired, now) != now) {
      const auto desired = agent::read_written(now);
      hostd->fails = desired && desired->policy == "wrong";
      hostd->desired_changed();
    }
    timers.at(timers.now() + kPollPeriod, [this] { look(); });
  }

  kube::Timers& timers;
  HostFs host;
  kube::CurlTransport transport;
  agent::NodeAgent agent;
  std::optional<test::HostdStandin> hostd;
  std::string known_desired;  ///< the desired.json that it knows of
};

Result<> serve(const std::filesystem::path& kubeconfig, const std::filesystem::path& folder, unsigned count,
               std::optional<unsigned> most) {
  const StopOnSignal stop;
  auto access = kube::cluster_access({.kubeconfig = kubeconfig}, {});
  if (!access) return fail(std::move(access).error());
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  kube::LoopTimers timers(**loop);
  const kube::Random random = kube::random_numbers();
  std::vector<std::unique_ptr<Node>> nodes;
  for (unsigned number = 0; number < count; ++number) {
    const std::string name = fmt::format("n{}", number);
    std::filesystem::create_directories(folder / name);
    nodes.push_back(std::make_unique<Node>(**loop, timers, random, *access, folder / name, name, most));
    if (auto begun = nodes.back()->agent.begin(); !begun) return begun;
  }
  (*loop)->run(stop.token());
  return {};
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  constexpr int kWords = 4;
  if (argc != kWords && argc != kWords + 1) {
    fmt::print(stderr, "usage: {} KUBECONFIG FOLDER COUNT [MOST]\n", argv[0]);
    return 2;
  }
  const auto number = [&](int word) { return static_cast<unsigned>(std::stoul(argv[word])); };
  const auto most = argc > kWords ? std::optional(number(kWords)) : std::nullopt;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (auto served = ferry::serve(argv[1], argv[2], number(3), most); !served) {
    fmt::print(stderr, "agents-at-scale: {}\n", served.error().message);
    return 1;
  }
  return 0;
}
