// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/runtime_place.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "kata-manager/runtimes/containerd_config.h"
#include "kata-manager/runtimes/containerd_start.h"
#include "kata-manager/runtimes/unit_file.h"

namespace ferry::kata {
namespace {

RuntimePlace rancher(const std::string& name, std::vector<std::string> units) {
  const std::filesystem::path data = "/var/lib/rancher/" + name;
  return {.name = name,
          .configuration = data / "agent/etc/containerd/config.toml",
          .rendered = true,
          .socket = "/run/k3s/containerd/containerd.sock",  // rke2's, too
          .units = std::move(units),
          .programs = {data / "data/current/bin/containerd", data / "bin/containerd"}};
}

// Distributions first: beside one, a containerd of Docker may run that no kubelet uses.
const std::vector<RuntimePlace>& places() {
  static const std::vector<RuntimePlace> all = {
      rancher("k3s", {"k3s.service", "k3s-agent.service"}),
      rancher("rke2", {"rke2-server.service", "rke2-agent.service"}),
      {.name = "microk8s",
       .configuration = "/var/snap/microk8s/current/args/containerd-template.toml",
       // The defaults of its containerd's start script; add-ons may change them.
       .placeholders = {{"${RUNTIME}", "runc"},
                        {"${RUNTIME_TYPE}", "io.containerd.runc.v2"},
                        {"${SNAPSHOTTER}", "overlayfs"}},
       .socket = "/var/snap/microk8s/common/run/containerd.sock",
       .units = {"snap.microk8s.daemon-containerd.service"},
       .programs = {"/snap/microk8s/current/bin/containerd"}},
      // It has no unit here: k0s's own units run more than containerd, and k0s restarts containerd itself.
      {.name = "k0s",
       .kind = RuntimeKind::k0s,
       .configuration = "/etc/k0s/containerd.d",
       .socket = "/run/k0s/containerd.sock",
       .programs = {"/var/lib/k0s/bin/containerd"}},
      {.name = "cri-o",
       .kind = RuntimeKind::crio,
       .configuration = "/etc/crio/crio.conf.d",
       .socket = "/run/crio/crio.sock",
       .units = {"crio.service"},
       .programs = {"/usr/bin/crio", "/usr/local/bin/crio"}},
      {.name = "containerd",
       .configuration = "/etc/containerd/config.toml",
       .socket = kContainerdSocket,
       .units = {"containerd.service"},
       .programs = {"/usr/bin/containerd", "/usr/local/bin/containerd"}},
  };
  return all;
}

bool is_there(const HostFs& host, const std::filesystem::path& path) {
  return host.exists(path.relative_path());
}

bool runs(const HostFs& host, const RuntimePlace& place) {
  // k3s and rke2 share one socket; their files decide.
  return is_there(host, place.socket) &&
         (!place.rendered || is_there(host, place.configuration.parent_path()));
}

bool is_installed(const HostFs& host, const RuntimePlace& place) {
  std::filesystem::path sign = place.configuration;
  if (place.kind == RuntimeKind::crio || place.rendered) sign = sign.parent_path();
  if (place.kind == RuntimeKind::k0s) sign.replace_filename("containerd.toml");
  return is_there(host, sign) ||
         std::ranges::any_of(place.programs, [&](const auto& program) { return is_there(host, program); });
}

Result<RuntimePlace> found_here(const HostFs& host) {
  for (const bool by_socket : {true, false}) {
    std::vector<RuntimePlace> found;
    std::ranges::copy_if(places(), std::back_inserter(found), [&](const RuntimePlace& place) {
      return by_socket ? runs(host, place) : is_installed(host, place);
    });
    if (found.size() == 1) return found.front();
    if (found.empty()) continue;

    std::string names;
    for (const RuntimePlace& place : found) names += (names.empty() ? "" : ", ") + place.name;
    return fail(
        Errc::refused,
        fmt::format("several container runtimes {} here: {}", by_socket ? "run" : "are installed", names),
        "say which one serves the kubelet: --runtime NAME, or `runtime: {name: NAME}` in the class file");
  }
  return fail(Errc::not_found, "no container runtime is here: neither containerd nor CRI-O",
              "install one first, or name one: --runtime NAME, or `runtime: {name: NAME}` in the class file");
}

constexpr const char* kService = "Service";

// The unit and its drop-ins name containerd's file, which may not be the default. True: they name the socket,
// too.
bool take_from_unit(const HostFs& host, RuntimePlace& place) {
  const auto name = unit_of(host, place);
  if (!name) return false;
  const auto unit = UnitFile::read(host, *name);
  if (!unit) return false;
  const auto line = unit->value(kService, "ExecStart");
  if (!line) return false;
  const auto command = command_words(*line);
  if (!command) return false;
  const ContainerdStart start = containerd_start(*command);
  if (start.configuration) place.configuration = *start.configuration;
  if (start.socket) place.socket = *start.socket;
  if (start.program) place.programs.insert(place.programs.begin(), *start.program);
  place.started = start.program;
  if (!start.program) {
    place.notes.push_back(
        fmt::format("{} starts {}, and which file containerd reads then is not known: {} is taken", *name,
                    command->words.front(), place.configuration.string()));
  } else if (command->open) {
    place.notes.push_back(fmt::format(
        "{} starts containerd with words that only systemd knows ({}): its file is taken to be {}", *name,
        *line, place.configuration.string()));
  }
  return start.socket.has_value();
}

}  // namespace

Result<RuntimePlace> runtime_place(const std::string& name) {
  std::vector<std::string> names;
  for (const RuntimePlace& place : places()) {
    if (place.name == name) return place;
    names.push_back(place.name);
  }
  return fail(Errc::usage, fmt::format("there is no container runtime {}{}", name, did_you_mean(name, names)),
              "one of containerd, cri-o, k0s, k3s, microk8s, rke2");
}

Result<RuntimePlace> find_runtime(const HostFs& host, const RuntimeChoice& choice) {
  auto place = choice.name ? runtime_place(*choice.name) : found_here(host);
  if (!place) return place;
  if (choice.unit) place->units = {*choice.unit};
  // Units of other places start k3s and the like, which name the socket in containerd's command.
  const bool is_plain = place->name == "containerd";
  const bool has_socket = !is_plain || take_from_unit(host, *place);
  if (choice.configuration) {
    place->configuration = *choice.configuration;
    place->notes.clear();
  }
  if (is_plain)
    place->next_socket =
        has_socket ? place->socket
                   : socket_in_files(ConfigFiles(host), place->configuration).value_or(place->socket);
  if (!has_socket && !choice.socket) {
    const auto usual = std::exchange(place->socket, place->next_socket.value_or(place->socket));
    if (!is_there(host, place->socket) && is_there(host, usual))
      place->notes.push_back(
          fmt::format("{} names the socket {}, which is not there, and there is {}: containerd has not been "
                      "restarted since",
                      place->configuration.string(), place->socket.string(), usual.string()));
  }
  if (choice.socket) place->socket = *choice.socket;
  return place;
}

bool is_active(const HostFs& host, const std::string& unit) {
  return std::ranges::any_of(
      std::array{"sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"},
      [&](const char* slice) { return host.exists(std::filesystem::path(slice) / unit); });
}

std::optional<std::string> unit_of(const HostFs& host, const RuntimePlace& place) {
  std::vector<std::string> here;
  std::vector<std::string> active;
  for (const std::string& unit : place.units) {
    if (!UnitFile::read(host, unit)) continue;
    here.push_back(unit);
    if (is_active(host, unit)) active.push_back(unit);
  }
  if (here.size() == 1) return here.front();
  if (active.size() == 1) return active.front();
  return std::nullopt;
}

}  // namespace ferry::kata
