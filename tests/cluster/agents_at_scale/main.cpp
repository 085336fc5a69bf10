// SPDX-License-Identifier: Apache-2.0
// usage: agents-at-scale KUBECONFIG FOLDER COUNT
// The agents of nodes n0, n1, ... in one process, each with its own connection to the API server and a folder
// of its own below FOLDER for its host. Until SIGTERM.
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <fmt/format.h>

#include "agent/node_agent.h"
#include "common/event_loop.h"
#include "common/stop_on_signal.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"
#include "kube/timers.h"

namespace ferry {
namespace {

struct Node {
  Node(EventLoop& loop, Timers& timers, const Random& random, const ClusterAccess& access,
       const std::filesystem::path& folder, std::string name)
      : host(folder),
        transport(loop, access),
        agent(host, transport, timers, random, [] { return std::chrono::system_clock::now(); },
              {.node = std::move(name),
               .space = "ferry",
               .config_maps = {"ferry-policies", "ferry-vgpu-profiles"},
               .config_files = {},
               .operator_space = "gpu-operator",
               .defaults = {}}) {}
  HostFs host;
  CurlTransport transport;
  NodeAgent agent;
};

Result<> serve(const std::filesystem::path& kubeconfig, const std::filesystem::path& folder, unsigned count) {
  const StopOnSignal stop;
  auto access = cluster_access({.kubeconfig = kubeconfig}, {});
  if (!access) return fail(std::move(access).error());
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  LoopTimers timers(**loop);
  std::mt19937_64 generator(std::random_device{}());
  const Random random = [&generator] { return std::uniform_real_distribution<double>(0, 1)(generator); };
  std::vector<std::unique_ptr<Node>> nodes;
  for (unsigned number = 0; number < count; ++number) {
    const std::string name = fmt::format("n{}", number);
    std::filesystem::create_directories(folder / name);
    nodes.push_back(std::make_unique<Node>(**loop, timers, random, *access, folder / name, name));
    if (auto begun = nodes.back()->agent.begin(); !begun) return begun;
  }
  (*loop)->run(stop.token());
  return {};
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  constexpr int kWords = 4;
  if (argc != kWords) {
    fmt::print(stderr, "usage: {} KUBECONFIG FOLDER COUNT\n", argv[0]);
    return 2;
  }
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (auto served = ferry::serve(argv[1], argv[2], static_cast<unsigned>(std::stoul(argv[3]))); !served) {
    fmt::print(stderr, "agents-at-scale: {}\n", served.error().message);
    return 1;
  }
  return 0;
}
