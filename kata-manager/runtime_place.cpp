// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime_place.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "common/suggest.h"
#include "kata-manager/unit_file.h"

namespace ferry {
namespace {

RuntimePlace rancher(const std::string& name, std::vector<std::string> units) {
  const std::filesystem::path data = "/var/lib/rancher/" + name;
  return {.name = name,
          .configuration = data / "agent/etc/containerd/config.toml",
          .rendered = true,
          .socket = "/run/k3s/containerd/containerd.sock",  // of rke2 too
          .units = std::move(units),
          .programs = {data / "data/current/bin/containerd", data / "bin/containerd"}};
}

// Distributions first: beside one, a containerd of Docker's may run that no kubelet uses.
const std::vector<RuntimePlace>& places() {
  static const std::vector<RuntimePlace> all = {
      rancher("k3s", {"k3s.service", "k3s-agent.service"}),
      rancher("rke2", {"rke2-server.service", "rke2-agent.service"}),
      {.name = "microk8s",
       .configuration = "/var/snap/microk8s/current/args/containerd-template.toml",
       .socket = "/var/snap/microk8s/common/run/containerd.sock",
       .units = {"snap.microk8s.daemon-containerd.service"},
       .programs = {"/snap/microk8s/current/bin/containerd"}},
      {.name = "cri-o",
       .kind = RuntimeKind::crio,
       .configuration = "/etc/crio/crio.conf.d",
       .socket = "/run/crio/crio.sock",
       .units = {"crio.service"},
       .programs = {"/usr/bin/crio", "/usr/local/bin/crio"}},
      {.name = "containerd",
       .configuration = "/etc/containerd/config.toml",
       .socket = "/run/containerd/containerd.sock",
       .units = {"containerd.service"},
       .programs = {"/usr/bin/containerd", "/usr/local/bin/containerd"}},
  };
  return all;
}

bool is_there(const HostFs& host, const std::filesystem::path& path) {
  return host.exists(path.relative_path());
}

bool runs(const HostFs& host, const RuntimePlace& place) {
  // k3s and rke2 have one socket: whose it is, their files tell.
  return is_there(host, place.socket) &&
         (!place.rendered || is_there(host, place.configuration.parent_path()));
}

bool is_installed(const HostFs& host, const RuntimePlace& place) {
  const auto& folder = place.kind == RuntimeKind::crio || place.rendered ? place.configuration.parent_path()
                                                                         : place.configuration;
  return is_there(host, folder) ||
         std::ranges::any_of(place.programs, [&](const auto& program) { return is_there(host, program); });
}

/// What shows that a runtime is in use here.
struct Sign {
  bool (*is_it)(const HostFs& host, const RuntimePlace& place);
  const char* what;
};

Error several(const std::vector<RuntimePlace>& found, const char* how) {
  std::string names;
  for (const RuntimePlace& place : found) names += (names.empty() ? "" : ", ") + place.name;
  return {.code = Errc::refused,
          .message = fmt::format("several container runtimes {} here: {}", how, names),
          .hint = "say which one serves the kubelet: --runtime NAME"};
}

Result<RuntimePlace> found_here(const HostFs& host) {
  if (is_there(host, "/run/k0s/containerd.sock") || is_there(host, "/etc/k0s/containerd.toml")) {
    return fail(
        Errc::unsupported,
        "k0s puts its containerd's configuration together by itself, and how is not known here",
        "write the runtimes into /etc/k0s/containerd.d by hand; `ferry kata plan --runtime containerd` "
        "shows what they look like");
  }
  for (const Sign& sign : {Sign{runs, "run"}, Sign{is_installed, "are installed"}}) {
    std::vector<RuntimePlace> found;
    std::ranges::copy_if(places(), std::back_inserter(found),
                         [&](const RuntimePlace& place) { return sign.is_it(host, place); });
    if (found.size() == 1) return found.front();
    if (!found.empty()) return fail(several(found, sign.what));
  }
  return fail(Errc::not_found, "no container runtime is here: neither containerd nor CRI-O",
              "install one first, or say which one it shall be: --runtime NAME");
}

}  // namespace

Result<RuntimePlace> runtime_place(const std::string& name) {
  std::vector<std::string> names;
  for (const RuntimePlace& place : places()) {
    if (place.name == name) return place;
    names.push_back(place.name);
  }
  return fail(Errc::usage, fmt::format("there is no container runtime {}{}", name, did_you_mean(name, names)),
              "one of containerd, cri-o, k3s, microk8s, rke2");
}

Result<RuntimePlace> find_runtime(const HostFs& host, const RuntimeChoice& choice) {
  auto place = choice.name ? runtime_place(*choice.name) : found_here(host);
  if (!place) return place;
  if (choice.configuration) place->configuration = *choice.configuration;
  if (choice.socket) place->socket = *choice.socket;
  if (choice.unit) place->units = {*choice.unit};
  return place;
}

std::optional<std::string> unit_of(const HostFs& host, const RuntimePlace& place) {
  std::vector<std::string> here;
  std::vector<std::string> active;
  for (const std::string& unit : place.units) {
    if (!UnitFile::read(host, unit)) continue;
    here.push_back(unit);
    const bool runs = std::ranges::any_of(
        std::array{"sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"},
        [&](const char* slice) { return host.exists(std::filesystem::path(slice) / unit); });
    if (runs) active.push_back(unit);
  }
  if (here.size() == 1) return here.front();
  if (active.size() == 1) return active.front();
  return std::nullopt;
}

}  // namespace ferry
