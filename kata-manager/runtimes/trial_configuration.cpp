// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/trial_configuration.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fcntl.h>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/vfs.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/text/text.h"
#include "kata-manager/runtimes/containerd_config.h"
#include "kata-manager/runtimes/containerd_place.h"

namespace ferry::kata {
namespace {

constexpr const char* kSnapshotters = "io.containerd.snapshotter.v1.";
constexpr const char* kServers = "io.containerd.server.v1.";
constexpr const char* kTasks = "io.containerd.service.v1.tasks-service";
constexpr const char* kTransfer = "io.containerd.transfer.v1.local";
constexpr const char* kNri = "io.containerd.nri.v1.nri";
constexpr const char* kNative = "native";
constexpr const char* kDefaultSnapshotter = "overlayfs";

// Plugins that act on anything outside containerd's root and state.
constexpr std::array kOff = {"io.containerd.internal.v1.restart", "io.containerd.internal.v1.tracing",
                             "io.containerd.tracing.processor.v1.otlp"};

// Plugins whose paths are only read, lie below root and state, or are replaced one by one.
constexpr std::array kHarmless = {"io.containerd.grpc.v1.cri",
                                  kCriRuntime,
                                  kCriImages,
                                  kNri,
                                  "io.containerd.image-verifier.v1.bindir",
                                  "io.containerd.metadata.v1.bolt",
                                  "io.containerd.runtime.v1.linux",
                                  "io.containerd.runtime.v2.task",
                                  kTasks,
                                  "io.containerd.shim.v1.manager",
                                  kTransfer};

/// True if a value, or one inside it, names a path or an address.
bool leads_elsewhere(const TomlValue& value) {
  if (const auto* text = value.string()) return text->find('/') != std::string::npos;
  if (const auto* list = value.array()) return std::ranges::any_of(*list, leads_elsewhere);
  if (const auto* table = value.table())
    return std::ranges::any_of(*table, [](const auto& entry) { return leads_elsewhere(entry.second); });
  return false;
}

TomlValue text(std::string value) {
  return {std::move(value)};
}

/// The port of "HOST:PORT"; absent: another text.
std::optional<std::uint16_t> port_of(std::string_view address) {
  const auto colon = address.rfind(':');
  return colon == std::string_view::npos ? std::nullopt
                                         : whole_number<std::uint16_t>(address.substr(colon + 1));
}

/// The host of "HOST:PORT"; empty: all addresses of this host.
std::string host_of(std::string_view address) {
  std::string host(address.substr(0, address.rfind(':')));
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  if (host == "localhost") return "127.0.0.1";
  return host == "0.0.0.0" || host == "::" ? "" : host;
}

/// True: the server listens there on TCP. The others take any address as a path.
bool is_tcp(std::string_view server, std::string_view key, std::string_view address) {
  return key == "tcp_address" || server.ends_with("metrics") || server.ends_with("tcp") ||
         (server.ends_with("debug") && !address.starts_with('/'));
}

/// This host in Go's words.
constexpr const char* platform() {
#if defined(__aarch64__)
  return "linux/arm64";
#elif defined(__x86_64__)
  return "linux/amd64";
#else
#error "add the platform as Go names it"
#endif
}

class ApartConfiguration {
 public:
  ApartConfiguration(const HostFs& host, TomlTable dump, std::filesystem::path folder)
      : host_(host), folder_(std::move(folder)), root_(std::move(dump)) {}

  TomlTable make() && {
    const std::string state = text_at(root_, {"state"});
    real_root_ = text_at(root_, {"root"});
    root_["state"] = folder_in_place_of(state, state == real_root_ ? "root" : "state");
    root_["root"] = folder_in_place_of(real_root_, "root");
    if (const std::string socket = text_at(root_, {"grpc", "address"}); !socket.empty())
      real_socket_ = socket;
    keep_log_apart(table_at(root_, {"debug"}));
    keep_servers_apart();
    keep_cri_apart();
    keep_differs_apart();
    keep_plugins_apart();
    if (const std::string temp = text_at(root_, {"temp"}); !temp.empty())
      root_["temp"] = folder_in_place_of(temp, "temp");
    if (!may_refuse_cgroup()) root_.erase("cgroup");
    for (const char* key : {"imports", "oom_score", "plugin_dir", "proxy_plugins", "stream_processors"})
      root_.erase(key);
    return std::move(root_);
  }

 private:
  TomlTable& plugins() { return table_at(root_, {"plugins"}); }

  /// True: no folder can be made there, because a part of the path is no folder, or a link that leads
  /// nowhere.
  bool is_blocked(const std::filesystem::path& folder) const {
    const auto found = host_.open(folder.relative_path(), O_PATH | O_DIRECTORY);
    if (found) return false;
    if (found.error().code == std::errc::not_a_directory ||
        found.error().code == std::errc::too_many_symbolic_link_levels)
      return true;
    for (auto part = folder.relative_path(); !part.empty(); part = part.parent_path())
      if (host_.link_target(part)) return !host_.exists(part);
    return false;
  }

  TomlValue folder_in_place_of(const std::string& real, const char* name) const {
    return text(is_blocked(real) ? real : (folder_ / name).string());
  }

  /// A path that is too long stays, since containerd refuses it before it touches anything.
  std::string socket_in_place_of(const std::string& real, const std::string& name,
                                 std::size_t longest) const {
    const auto folder = std::filesystem::path(real).parent_path();
    const bool is_refused = real.size() > longest && host_.exists(folder.relative_path());
    return is_refused || is_blocked(folder) ? real : (folder_ / (name + ".sock")).string();
  }

  /// The trial's own log needs no details, and has to be text. containerd ends by a word that it does not
  /// know.
  static void keep_log_apart(TomlTable& debug) {
    // ABI: logrus' ParseLevel().
    constexpr auto kLevels = std::to_array<std::string_view>(
        {"", "panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"});
    if (std::ranges::find(kLevels, lower(text_at(debug, {"level"}))) != kLevels.end())
      debug["level"] = text("error");
    if (text_at(debug, {"format"}) == "json") debug.erase("format");
  }

  /// containerd ends if it cannot join its group of cgroup v2. It makes a missing group of version 1.
  bool may_refuse_cgroup() const {
    const std::filesystem::path root = "sys/fs/cgroup";
    const std::filesystem::path group = text_at(root_, {"cgroup", "path"});
    if (group.empty() || group == "/" || !host_.exists(root / "cgroup.controllers")) return false;
    const bool is_plain =
        group.is_absolute() && group.has_filename() && group.lexically_normal().native() == group.native();
    const auto folder = root / group.relative_path();
    // A group that shares its controllers out takes no process.
    return !is_plain || !host_.exists(folder / "cgroup.procs") ||
           !host_.read_attribute(folder / "cgroup.subtree_control").value_or("").empty();
  }

  static std::string kind_of(std::string_view server, std::string_view key) {
    if (key == "tcp_address") return "grpc-tcp";
    if (server.starts_with(kServers)) server.remove_prefix(std::string_view(kServers).size());
    return std::string(server);
  }

  void note_tcp(const TomlTable& server, const std::string& name) {
    for (const char* key : {"address", "tcp_address"})
      if (std::string real = text_at(server, {key});
          is_tcp(name, key, real) && port_of(real).value_or(0) != 0)
        tcp_[kind_of(name, key)] = std::move(real);
  }

  static std::string stream_of(const TomlTable& cri) {
    const std::string address = text_at(cri, {"stream_server_address"});
    return fmt::format("{}:{}", address.empty() ? "one of the host's" : address,
                       text_at(cri, {"stream_server_port"}));
  }

  /// True: two servers listen there. Both keep the address, so that containerd says that it is in use.
  bool is_shared(const std::string& kind, const std::string& address) const {
    return std::ranges::any_of(tcp_, [&](const auto& other) {
      if (other.first == kind || port_of(other.second) != port_of(address)) return false;
      const std::string here = host_of(address);
      const std::string there = host_of(other.second);
      return here == there || here.empty() || there.empty();
    });
  }

  /// Without an address containerd would take its usual one, which is the live daemon's.
  void keep_server_apart(TomlTable& server, const std::string& name) const {
    constexpr std::size_t kLongest = 104;  // in containerd, on every system
    for (const char* key : {"uid", "gid"}) server.erase(key);
    if (name.ends_with("grpc") && text_at(server, {"address"}).empty())
      server["address"] = text(kContainerdSocket);
    if (name.ends_with("ttrpc") && text_at(server, {"address"}).empty())
      server["address"] = text(real_socket_ + ".ttrpc");
    for (const char* key : {"address", "tcp_address"}) {
      std::string real = text_at(server, {key});
      if (real.empty()) continue;
      if (is_tcp(name, key, real)) {
        if (port_of(real) && !is_shared(kind_of(name, key), real))
          server[key] = text(real.substr(0, real.rfind(':')) + ":0");
        continue;
      }
      // containerd takes any other address as a path, from the root that it runs in.
      if (!real.starts_with('/')) real.insert(0, "/");
      const bool is_folder =
          host_.open(std::filesystem::path(real).relative_path(), O_PATH | O_DIRECTORY).has_value();
      server[key] = text(is_folder ? real : socket_in_place_of(real, name, kLongest));
    }
  }

  void keep_servers_apart() {
    std::map<std::string, TomlTable*> servers;
    for (const char* server : {"grpc", "ttrpc", "metrics", "debug"})
      servers[server] = &table_at(root_, {server});
    // Since version 4 each server is a plugin.
    if (integer_at(root_, {"version"}).value_or(0) >= 4)
      for (const char* server : {"grpc", "ttrpc"}) table_at(plugins(), {std::string(kServers) + server});
    for (auto& [id, section] : plugins())
      if (id.starts_with(kServers) && section.table() != nullptr) servers[id] = section.table();
    for (const auto& [name, server] : servers) note_tcp(*server, name);
    if (const TomlTable* cri = find_table(root_, {"plugins", kCriOfVersion2}))
      if (std::string stream = stream_of(*cri); port_of(stream).value_or(0) != 0)
        tcp_["stream"] = std::move(stream);
    for (const auto& [name, server] : servers) keep_server_apart(*server, name);
  }

  bool is_disabled(const std::string& id) const {
    const auto disabled = texts_at(root_, {"disabled_plugins"});
    return std::ranges::find(disabled, id) != disabled.end();
  }

  /// True: the trial's folder cannot show whether a snapshotter that needs a filesystem of its own works.
  /// ZFS's program and device may be out of reach here.
  bool has_own_filesystem(std::string_view snapshotter) const {
    constexpr std::int64_t kZfs = 0x2fc12fc1;  // ABI: ZFS_SUPER_MAGIC of OpenZFS
    if (snapshotter != "btrfs" && snapshotter != "zfs") return false;
    const auto type_of = [&](std::filesystem::path path) -> std::int64_t {
      struct statfs status {};
      for (;; path = path.parent_path()) {
        const auto folder = host_.open(path.relative_path().empty() ? "." : path.relative_path(), O_PATH);
        if (folder) return ::fstatfs(folder->get(), &status) == 0 ? std::int64_t{status.f_type} : -1;
        if (!path.has_relative_path()) return -1;
      }
    };
    const auto real = type_of(real_root_);
    return real == kZfs || real != type_of(folder_);
  }

  /// The name for the trial. A proxy's socket, and a snapshotter with state elsewhere, are out of its reach.
  std::string snapshotter(const std::string& name) {
    const std::string id = kSnapshotters + name;
    const TomlTable* settings = find_table(root_, {"plugins", id});
    if (text_at(root_, {"proxy_plugins", name, "type"}) == "snapshot") return kNative;
    if (is_disabled(id) || settings == nullptr) return name;
    const bool is_configured = std::ranges::any_of(*settings, [](const auto& entry) {
      return entry.second.string() != nullptr && !entry.second.string()->empty();
    });
    if (name == kDefaultSnapshotter || is_configured || has_own_filesystem(name)) return kNative;
    tried_.insert(id);
    return name;
  }

  void keep_entry_apart(TomlTable& entry) {
    if (const std::string name = text_at(entry, {"snapshotter"}); !name.empty())
      entry["snapshotter"] = text(snapshotter(name));
    if (is_proxy(text_at(entry, {"differ"}))) entry.erase("differ");
    for (const char* key : {"conf_dir", "cni_conf_dir"})
      if (const std::string real = text_at(entry, {key}); !real.empty())
        entry[key] = folder_in_place_of(real, "cni");
  }

  void keep_entries_apart(TomlTable& section, std::initializer_list<std::string_view> keys) {
    if (find_table(section, keys) == nullptr) return;
    for (auto& [name, entry] : table_at(section, keys))
      if (entry.table() != nullptr) keep_entry_apart(*entry.table());
  }

  /// In containerd 1 the section has the images' settings, too.
  void keep_cri_apart() {
    for (const std::string& id : texts_at(root_, {"required_plugins"}))
      if (id.starts_with(kSnapshotters)) snapshotter(id.substr(std::string_view(kSnapshotters).size()));
    for (const char* id : {kCriOfVersion2, kCriRuntime, kCriImages}) {
      if (find_table(root_, {"plugins", id}) == nullptr) continue;
      TomlTable& section = table_at(plugins(), {id});
      if (const std::string stream = stream_of(section); port_of(stream) && !is_shared("stream", stream))
        section["stream_server_port"] = text("0");
      keep_entry_apart(section);
      for (const char* key : {"cni", "containerd"})
        if (find_table(section, {key}) != nullptr) keep_entry_apart(table_at(section, {key}));
      for (const char* key : {"default_runtime", "untrusted_workload_runtime"})
        if (find_table(section, {"containerd", key}) != nullptr)
          keep_entry_apart(table_at(section, {"containerd", key}));
      keep_entries_apart(section, {"containerd", "runtimes"});
      keep_entries_apart(section, {"runtime_platforms"});
    }
    if (find_table(root_, {"plugins", kCriImages}) == nullptr) return;

    // Images are unpacked by containerd's default snapshotter, if the section names none.
    TomlTable& section = table_at(plugins(), {kTransfer});
    const TomlValue* given = find(section, {"unpack_config"});
    TomlArray all;
    if (given != nullptr && given->array() != nullptr) all = *given->array();
    if (all.empty() && !is_disabled(std::string(kSnapshotters) + kDefaultSnapshotter))
      all.push_back({TomlTable{{"platform", text(platform())}, {"snapshotter", text(kNative)}}});
    for (TomlValue& one : all)
      if (one.table() != nullptr) keep_entry_apart(*one.table());
    section["unpack_config"] = {std::move(all)};
  }

  /// The IDs of plugins behind a socket, which is out of the trial's reach.
  /// ABI: containerd's cmd/containerd/server/server.go, LoadPlugins().
  std::set<std::string> proxies() const {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kKinds = {
        {{"snapshot", kSnapshotters},
         {"content", "io.containerd.content.v1."},
         {"diff", "io.containerd.differ.v1."},
         {"sandbox", "io.containerd.sandbox.controller.v1."}}};
    std::set<std::string> out;
    if (const TomlTable* all = find_table(root_, {"proxy_plugins"}))
      for (const auto& [name, proxy] : *all)
        for (const auto& [type, kind] : kKinds)
          if (text_at(root_, {"proxy_plugins", name, "type"}) == type) out.insert(std::string(kind) + name);
    return out;
  }

  bool is_proxy(const std::string& differ) const {
    return text_at(root_, {"proxy_plugins", differ, "type"}) == "diff";
  }

  void keep_differs_apart() {
    constexpr const char* kDiffs = "io.containerd.service.v1.diff-service";
    if (find_table(root_, {"plugins", kDiffs}) == nullptr) return;
    TomlTable& section = table_at(plugins(), {kDiffs});
    TomlArray left;
    for (std::string& differ : texts_at(section, {"default"}))
      if (!is_proxy(differ)) left.push_back(text(std::move(differ)));
    if (left.empty())
      section.erase("default");
    else
      section["default"] = {std::move(left)};
  }

  /// NRI starts no plugin in the trial, and takes none in.
  void keep_nri_apart() {
    constexpr std::size_t kLongest = 107;  // ABI: unix(7), sun_path
    if (!plugins().contains(kNri)) return;
    TomlTable& nri = table_at(plugins(), {kNri});
    nri["socket_path"] = text(socket_in_place_of(text_at(nri, {"socket_path"}), "nri", kLongest));
    for (const char* key : {"plugin_path", "plugin_config_path"})
      nri[key] = folder_in_place_of(text_at(nri, {key}), key);
  }

  /// CRI may need the plugin, so it stays on, and takes its defaults for all but its folder.
  void keep_plugin_apart(const std::string& id, TomlTable& section) const {
    const bool has_folder = section.contains("path");
    const std::string folder = text_at(section, {"path"});
    section.clear();
    if (has_folder) section["path"] = folder_in_place_of(folder, id.c_str());
  }

  void keep_plugins_apart() {
    const std::string native = std::string(kSnapshotters) + kNative;
    std::set<std::string> off = proxies();
    off.insert(kOff.begin(), kOff.end());
    for (const std::string_view name : kBuiltInSnapshotters)
      off.insert(fmt::format("{}{}", kSnapshotters, name));
    for (auto& [id, section] : plugins()) {
      const bool is_harmless =
          id.starts_with(kServers) || std::ranges::find(kHarmless, id) != kHarmless.end();
      if (id.starts_with(kSnapshotters))
        off.insert(id);
      else if (TomlTable* settings = section.table();
               settings != nullptr && !is_harmless &&
               (settings->contains("path") || leads_elsewhere(section)))
        keep_plugin_apart(id, *settings);
    }
    off.erase(native);
    for (const std::string& id : tried_) off.erase(id);
    for (const std::string& id : off) plugins().erase(id);
    plugins().erase(native);
    // The section has files of RDT and blockio, which containerd would apply.
    plugins().erase(kTasks);
    keep_nri_apart();

    TomlArray required;
    for (std::string& id : texts_at(root_, {"required_plugins"}))
      if (!off.contains(id)) required.push_back(text(std::move(id)));
    required.push_back(text(kCriOfVersion2));
    if (plugins().contains(kCriRuntime)) {
      required.push_back(text(kCriRuntime));
      required.push_back(text(kCriImages));
    }
    root_["required_plugins"] = {std::move(required)};

    TomlArray disabled;
    for (std::string& id : texts_at(root_, {"disabled_plugins"}))
      if (id != native) disabled.push_back(text(std::move(id)));
    for (const std::string& id : off) disabled.push_back(text(id));
    root_["disabled_plugins"] = {std::move(disabled)};
  }

  const HostFs& host_;
  const std::filesystem::path folder_;
  TomlTable root_;
  std::string real_root_;
  std::string real_socket_ = kContainerdSocket;
  std::set<std::string> tried_;             // snapshotters that stay on
  std::map<std::string, std::string> tcp_;  // servers on TCP with a port of their own, and their addresses
};

}  // namespace

TomlTable kept_apart(const HostFs& host, TomlTable dump, const std::filesystem::path& folder) {
  return ApartConfiguration(host, std::move(dump), folder).make();
}

}  // namespace ferry::kata
