// SPDX-License-Identifier: Apache-2.0
// kubelet-standin: the stand-in as a process, and a command line to talk to it. See usage().
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/kubelet_standin/standin.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kUsage = R"(kubelet-standin: the kubelet's device manager without Kubernetes

  kubelet-standin serve --dir DIR [--pod-resources PODS] [--state FILE] [--refuse-second]
      Listens on DIR/kubelet.sock until SIGTERM; prints "ready" when it does. --pod-resources: also lists on
      PODS/kubelet.sock what has been allocated, each allocation a pod. --state keeps FILE up to date with what
      `resources` prints. --refuse-second: refuses a resource whose stream is alive.
  The others talk to it and print JSON; exit 0, or 1 when it was refused, did not come true, or nobody serves DIR:
  kubelet-standin resources --dir DIR
      {RESOURCE: {"capacity", "allocatable", "endpoint", "connected", "lists", "allocated": [ID],
                  "devices": [{"id", "health", "numa_nodes": null or [NODE]}]}}
  kubelet-standin registrations --dir DIR
      every Register call: [{"version", "endpoint", "resource", "error"}]
  kubelet-standin wait --dir DIR RESOURCE N [SECONDS]
      until RESOURCE has exactly N allocatable devices (default 30 s)
  kubelet-standin allocate --dir DIR RESOURCE N [ID...]
      N healthy free devices, or those named:
      {"resource", "ids": [ID], "envs": {}, "devices": [{"host_path", "container_path", "permissions"}],
       "mounts": [], "annotations": {}, "cdi_devices": []}, or {"resource", "error", "status"}
  kubelet-standin force --dir DIR RESOURCE ID...
      as allocate, without asking whether a kubelet would
  kubelet-standin remember --dir DIR RESOURCE POD ID...
      POD has had them since before this kubelet started: from its checkpoint
  kubelet-standin release --dir DIR ID...
      the containers that had them are gone
  kubelet-standin restart --dir DIR
      ends all connections, removes the sockets and listens anew, as a restarted kubelet does
)";

int usage_error(const std::string& what) {
  std::cerr << "kubelet-standin: " << what << "\n\n" << kUsage;
  return 2;
}

// Not in DIR: a kubelet removes the sockets there, and so does the stand-in when it restarts.
fs::path control_path(const fs::path& directory) {
  return directory.parent_path() / (directory.filename().string() + ".standin");
}

std::optional<sockaddr_un> address_of(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = path.native();
  if (name.size() >= sizeof(address.sun_path)) return std::nullopt;
  name.copy(static_cast<char*>(address.sun_path), name.size());
  return address;
}

bool write_line(int fd, const std::string& text) {
  const std::string line = text + "\n";
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t n = ::send(fd, line.data() + at, line.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

std::string read_line(int fd) {
  std::string line;
  char c = 0;
  while (::read(fd, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

Json to_json(const standin::Resources& resources) {
  Json all = Json::object();
  for (const auto& [name, resource] : resources) {
    Json devices = Json::array();
    for (const auto& [id, device] : resource.devices) {
      devices.push_back({{"id", id},
                         {"health", device.healthy ? "Healthy" : "Unhealthy"},
                         {"numa_nodes", device.has_topology ? Json(device.numa_nodes) : Json()}});
    }
    all[name] = {{"capacity", resource.capacity()}, {"allocatable", resource.allocatable()},
                 {"endpoint", resource.endpoint},   {"connected", resource.connected},
                 {"lists", resource.lists},         {"allocated", resource.allocated},
                 {"devices", std::move(devices)}};
  }
  return all;
}

Json to_json(const std::string& resource, const standin::Answer& answer) {
  if (!answer.ok()) return {{"resource", resource}, {"error", answer.error}, {"status", answer.status}};
  Json devices = Json::array();
  for (const auto& device : answer.devices)
    devices.push_back({{"host_path", device.host_path},
                       {"container_path", device.container_path},
                       {"permissions", device.permissions}});
  Json mounts = Json::array();
  for (const auto& mount : answer.mounts)
    mounts.push_back({{"host_path", mount.host_path},
                      {"container_path", mount.container_path},
                      {"read_only", mount.read_only}});
  return {{"resource", resource},
          {"ids", answer.ids},
          {"envs", answer.envs},
          {"devices", std::move(devices)},
          {"mounts", std::move(mounts)},
          {"annotations", answer.annotations},
          {"cdi_devices", answer.cdi_devices}};
}

class Service {
 public:
  Service(const fs::path& directory, standin::Options options, fs::path state)
      : kubelet_(directory, std::move(options)), state_(std::move(state)) {}

  bool start() { return kubelet_.start(); }

  /// {"ok": whether it was done, "out": what to print}
  Json handle(const Json& request) {
    const std::string command = request.at("command");
    const std::vector<std::string> words = request.at("words");
    if (command == "resources") return done(to_json(kubelet_.resources()));
    if (command == "registrations") {
      Json calls = Json::array();
      for (const auto& call : kubelet_.registrations())
        calls.push_back({{"version", call.version},
                         {"endpoint", call.endpoint},
                         {"resource", call.resource},
                         {"error", call.error}});
      return done(std::move(calls));
    }
    if (command == "wait") {
      const auto desired = static_cast<std::size_t>(std::stoul(words.at(1)));
      const auto limit = std::chrono::seconds(words.size() > 2 ? std::stoi(words[2]) : 30);
      const bool came = kubelet_.wait_for(
          [&](const standin::Resources& resources) {
            const auto known = resources.find(words[0]);
            return (known == resources.end() ? 0 : known->second.allocatable()) == desired;
          },
          limit);
      return {{"ok", came}, {"out", to_json(kubelet_.resources())}};
    }
    if (command == "allocate") {
      const std::vector<std::string> ids(words.begin() + 2, words.end());
      const auto answer = ids.empty() ? kubelet_.allocate(words[0], std::stoi(words.at(1)))
                                      : kubelet_.allocate(words[0], ids);
      return {{"ok", answer.ok()}, {"out", to_json(words[0], answer)}};
    }
    if (command == "force") {
      const auto answer = kubelet_.allocate(words[0], {words.begin() + 1, words.end()}, true);
      return {{"ok", answer.ok()}, {"out", to_json(words[0], answer)}};
    }
    if (command == "remember") {
      kubelet_.remember({.name = words.at(1), .resource = words[0], .ids = {words.begin() + 2, words.end()}});
      return done(to_json(kubelet_.resources()));
    }
    if (command == "release") {
      kubelet_.release(words);
      return done(to_json(kubelet_.resources()));
    }
    kubelet_.stop();  // restart
    return {{"ok", kubelet_.start()}, {"out", Json::object()}};
  }

  /// Until `over`: the state file is replaced whenever something has changed.
  void keep_state(const std::atomic<bool>& over) {
    std::string written;
    while (!over) {
      const auto changed = [&](const standin::Resources& resources) {
        return over || to_json(resources).dump(2) != written;
      };
      kubelet_.wait_for(changed, std::chrono::milliseconds(200));
      const std::string text = to_json(kubelet_.resources()).dump(2);
      if (text == written) continue;
      const fs::path scratch = state_.string() + ".new";
      std::ofstream(scratch) << text << "\n";
      fs::rename(scratch, state_);
      written = text;
    }
  }

 private:
  static Json done(Json out) { return {{"ok", true}, {"out", std::move(out)}}; }

  standin::Kubelet kubelet_;
  const fs::path state_;
};

/// Answers one connection: a line with the request, a line with the answer.
void answer(Service& service, int connection) {
  Json reply;
  try {
    reply = service.handle(Json::parse(read_line(connection)));
  } catch (const std::exception& error) {
    reply = {{"ok", false}, {"out", {{"error", error.what()}}}};
  }
  write_line(connection, reply.dump());
  ::close(connection);
}

int serve(const fs::path& directory, const fs::path& state, standin::Options options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const fs::path pods = options.pod_resources;
  Service service(directory, std::move(options), state);
  if (!service.start()) {
    std::cerr << "kubelet-standin: cannot listen on " << directory / "kubelet.sock"
              << (pods.empty() ? "" : " or " + (pods / "kubelet.sock").string()) << "\n";
    return 1;
  }
  const auto control = control_path(directory);
  const auto address = address_of(control);
  fs::remove(control);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (!address || ::bind(listener, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      ::listen(listener, 16) != 0) {
    std::cerr << "kubelet-standin: cannot listen on " << control << ": " << std::strerror(errno) << "\n";
    return 1;
  }
  std::atomic<bool> over = false;
  const std::thread accepting([&] {
    while (true) {
      const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      std::thread(answer, std::ref(service), connection).detach();
    }
  });
  std::thread keeping;
  if (!state.empty()) keeping = std::thread([&] { service.keep_state(over); });
  std::cout << "ready" << std::endl;

  int signal = 0;
  sigwait(&signals, &signal);
  over = true;
  fs::remove(control);
  std::error_code ignored;
  fs::remove(directory / "kubelet.sock", ignored);
  if (!pods.empty()) fs::remove(pods / "kubelet.sock", ignored);
  // Commands may still wait in their threads: as a killed kubelet would, it just ends.
  ::_exit(0);
}

int ask(const fs::path& directory, const std::string& command, const std::vector<std::string>& words) {
  const auto address = address_of(control_path(directory));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (!address || ::connect(fd, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    std::cerr << "kubelet-standin: nobody serves " << directory << "\n";
    return 1;
  }
  write_line(fd, Json({{"command", command}, {"words", words}}).dump());
  const Json reply = Json::parse(read_line(fd), nullptr, false);
  if (reply.is_discarded()) {
    std::cerr << "kubelet-standin: the server ended\n";
    return 1;
  }
  std::cout << reply.at("out").dump(2) << "\n";
  return reply.at("ok").get<bool>() ? 0 : 1;
}

bool is_number(const std::string& text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool fits(const std::string& command, const std::vector<std::string>& words) {
  if (command == "resources" || command == "registrations" || command == "restart") return words.empty();
  if (command == "wait")
    return (words.size() == 2 || words.size() == 3) && is_number(words[1]) && is_number(words.back());
  if (command == "allocate")
    return words.size() >= 2 && is_number(words[1]) &&
           (words.size() == 2 || words.size() - 2 == std::stoul(words[1]));
  if (command == "force") return words.size() >= 2;
  if (command == "remember") return words.size() >= 3;
  if (command == "release") return !words.empty();
  return command == "serve" && words.empty();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return usage_error("a command is missing");
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    std::cout << kUsage;
    return 0;
  }
  fs::path directory;
  fs::path state;
  standin::Options options;
  std::vector<std::string> words;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const bool more = i + 1 < arguments.size();
    if (arguments[i] == "--dir" && more) {
      directory = arguments[++i];
    } else if (arguments[i] == "--state" && more) {
      state = arguments[++i];
    } else if (arguments[i] == "--pod-resources" && more) {
      options.pod_resources = fs::absolute(arguments[++i]).lexically_normal();
    } else if (arguments[i] == "--refuse-second") {
      options.refuse_second_registration = true;
    } else if (arguments[i].starts_with("--")) {
      return usage_error("unknown or incomplete option " + arguments[i]);
    } else {
      words.push_back(arguments[i]);
    }
  }
  if (directory.empty()) return usage_error("--dir is missing");
  directory = fs::absolute(directory).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();
  if (!fits(arguments[0], words))
    return usage_error("unknown command, or wrong words after it: " + arguments[0]);
  if (arguments[0] == "serve") return serve(directory, state, std::move(options));
  return ask(directory, arguments[0], words);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "kubelet-standin: " << error.what() << "\n";
    return 1;
  }
}
