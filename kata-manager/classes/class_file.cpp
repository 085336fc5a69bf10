// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/class_file.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "kata-manager/classes/class_parts.h"

namespace ferry::kata {
namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kVersion = "version";
constexpr const char* kArtifactsDir = "artifactsDir";
constexpr const char* kClasses = "runtimeClasses";
constexpr const char* kRestart = "restart";
constexpr const char* kPodResources = "podResources";
constexpr const char* kMirrors = "mirrors";

// ---- settings of the whole node

bool is_unit(std::string_view text) {
  constexpr std::string_view kSuffix = ".service";
  constexpr std::string_view kSigns = ":-_.\\@";
  const auto is_known = [&](char c) {
    return is_alphanumeric(c) || kSigns.find(c) != std::string_view::npos;
  };
  return text.size() > kSuffix.size() && text.ends_with(kSuffix) && std::ranges::all_of(text, is_known);
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::none_of(text, [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
  });
}

/// http:// or https://, with a host and perhaps a user, a port and a path. Skopeo takes no proxy at all for
/// an address that it cannot read, and says nothing.
bool is_web_address(std::string_view text) {
  const std::size_t scheme = text.starts_with("http://") ? 7 : text.starts_with("https://") ? 8 : 0;
  if (scheme == 0 || !is_word(text)) return false;
  std::string_view host = text.substr(scheme);
  host = host.substr(0, host.find_first_of("/?#"));

  const auto has_only = [](std::string_view part, std::string_view signs) {
    return std::ranges::all_of(
        part, [&](char c) { return is_alphanumeric(c) || signs.find(c) != std::string_view::npos; });
  };

  const std::string_view user = host.substr(0, host.rfind('@') + 1);
  for (std::size_t i = user.find('%'); i != std::string_view::npos; i = user.find('%', i + 1))
    if (i + 3 > user.size() || !whole_number<unsigned>(user.substr(i + 1, 2), 16)) return false;
  if (!has_only(user, "-._:~!$&'()*+,;=%@")) return false;
  host.remove_prefix(user.size());

  const bool is_v6 = host.starts_with('[') && host.find(']') != std::string_view::npos;
  const std::size_t end = is_v6 ? host.find(']') + 1 : std::min(host.find(':'), host.size());
  const std::string_view port = host.substr(end);
  if (!port.empty() && (port.front() != ':' || !whole_number<std::uint16_t>(port.substr(1)))) return false;
  const std::string_view name = is_v6 ? host.substr(1, end - 2) : host.substr(0, end);
  return !name.empty() && has_only(name, is_v6 ? ":." : "-._");
}

void read_runtime(const ClassPart& root, ClassFile& into) {
  const ClassPart runtime = root.at("runtime");
  if (runtime.map == nullptr) return;
  runtime.check_keys({"name", "config", "socket"}, {});
  if (const ConfigNode* name = runtime.find("name")) {
    std::string text;
    runtime.text_at("name", "the name of a container runtime", is_word, text);
    if (auto place = runtime_place(text); !place)
      runtime.blame(root.reader->refuse(*name, runtime.key("name"), std::move(place).error()).value());
    into.runtime.name = text;
  }
  runtime.path_at("config", into.runtime.configuration);
  runtime.path_at("socket", into.runtime.socket);
}

void read_restart(const ClassPart& root, ClassFile& into) {
  constexpr const char* kWays = "write none, {unit: containerd.service} or {command: [/PROGRAM, ARGUMENT]}";
  const ConfigNode* node = root.find(kRestart);
  if (node == nullptr) return;
  if (node->is_string() && node->text == "none") {
    into.restart.how = RuntimeRestart::How::none;
    return;
  }
  if (node->kind != Kind::map)
    return root.refuse(*node, kRestart, "expected a way to restart, found " + node->described(), kWays);
  const ClassPart restart = root.at(kRestart);
  restart.check_keys({"unit", "command"}, {});
  if (restart.map->members.size() != 1)
    return root.refuse(*node, kRestart, "expected one way to restart", kWays);
  const ConfigNode* command = restart.find("command");
  if (command == nullptr) {
    return restart.text_at("unit", "the name of a service, UNIT.service", is_unit,
                           into.runtime.unit.emplace());
  }
  into.restart.how = RuntimeRestart::How::command;
  const auto has_no_nul = [](std::string_view text) { return text.find('\0') == std::string_view::npos; };
  restart.texts_at("command", "a word of a command", has_no_nul, into.restart.command);
  if (into.restart.command.empty() || !is_host_path(into.restart.command.front()))
    restart.refuse(*command, "command", "expected a program's absolute path, then its arguments");
}

void read_pull(const ClassPart& root, ClassFile& into) {
  const ClassPart pull = root.at("pull");
  if (pull.map == nullptr) return;
  pull.check_keys({"proxy", "noProxy", kMirrors, "certificates", "dockerConfig"}, {});
  pull.text_at("proxy", "a URL, http://HOST:PORT", is_web_address, into.pull.proxy);
  pull.texts_at("noProxy", "a host or a domain", is_word, into.pull.no_proxy);
  pull.path_at("certificates", into.pull.certificates);
  pull.path_at("dockerConfig", into.pull.docker_configuration);

  const ClassPart mirrors = pull.at(kMirrors);
  if (mirrors.map == nullptr) return;
  for (const ConfigMember& registry : mirrors.map->members) {
    const std::string& host = registry.key.text;
    if (!is_word(host) || host.find('/') != std::string::npos)
      return mirrors.refuse(registry.key, host, "expected a registry's host, as in docker.io or host:5000");
    std::vector<std::string> urls;
    mirrors.texts_at(host, "a URL, https://HOST or http://HOST", is_web_address, urls);
    into.pull.mirrors.emplace(host, std::move(urls));
  }
}

void read_node(const ClassPart& root, ClassFile& into) {
  std::optional<std::filesystem::path> artifacts_dir;
  root.path_at(kArtifactsDir, artifacts_dir);
  if (artifacts_dir) into.artifacts_dir = *artifacts_dir;
  if (root.is_nvidias) return;
  root.flag_at("loadModules", into.load_modules);
  read_runtime(root, into);
  read_restart(root, into);
  read_pull(root, into);

  const auto may_be = [](std::string_view text) { return text.empty() || is_host_path(text); };
  std::string pod_resources = into.pod_resources;
  root.text_at(kPodResources, "the path of the kubelet's socket, or \"\"", may_be, pod_resources);
  into.pod_resources = pod_resources;
}

// ---- the classes

bool is_blank(const ConfigNode& map, std::string_view key) {
  const ConfigMember* member = map.find(key);
  if (member == nullptr || member->value.kind == Kind::null) return true;
  return member->value.kind == Kind::scalar && member->value.text.empty();
}

void add_class(const ClassPart& part, KataClass kata, std::vector<KataClass>& classes) {
  std::vector<std::string> own;
  for (const std::string& handler : kata.handlers()) {
    if (std::ranges::find(own, handler) != own.end())
      return part.refuse(*part.map, "aliases", fmt::format("'{}' stands twice", handler));
    own.push_back(handler);
    const auto other = std::ranges::find_if(classes, [&](const KataClass& earlier) {
      const auto names = earlier.handlers();
      return std::ranges::find(names, handler) != names.end();
    });
    if (other == classes.end()) continue;
    const std::string what = fmt::format("the handler {} is there already, at {}", handler, other->place);
    if (!part.is_nvidias || !part.reader->let_pass(*part.map, part.path, what + "; the last one counts"))
      return part.refuse(*part.map, "name", what);
    classes.erase(other);
  }
  classes.push_back(std::move(kata));
}

void read_all_classes(const ClassPart& root, std::vector<KataClass>& into) {
  const ConfigNode* list = root.find(kClasses);
  if (list == nullptr || list->kind == Kind::null) return;
  if (list->kind != Kind::list) {
    return root.refuse(*list, kClasses,
                       fmt::format("expected a list of classes, found {}", list->described()));
  }
  for (std::size_t i = 0; i < list->items.size() && !*root.fault; ++i) {
    const ConfigNode& item = list->items[i];
    const std::string path = fmt::format("{}[{}]", kClasses, i);
    if (item.kind != Kind::map) {
      return root.refuse(item, path,
                         fmt::format("expected a map with name and artifacts, found {}", item.described()));
    }
    ClassPart part = root;
    part.map = &item;
    part.path = path;
    // NVIDIA's program drops a class without a name or a URL, and goes on.
    if (part.is_nvidias) {
      const ConfigMember* artifacts = item.find("artifacts");
      const bool has_url =
          artifacts != nullptr && artifacts->value.kind == Kind::map && !is_blank(artifacts->value, "url");
      const char* const lack = is_blank(item, "name") ? "a name" : (has_url ? nullptr : "a URL");
      if (lack != nullptr &&
          part.reader->let_pass(item, path, fmt::format("a class without {} is dropped", lack)))
        continue;
    }
    KataClass kata = read_kata_class(part);
    if (!*root.fault) add_class(part, std::move(kata), into);
  }
}

}  // namespace

Result<ClassFile> read_classes(const ConfigText& source, Reading how) {
  ClassFile out;
  out.file = source.file;
  std::vector<std::string>* const tolerated = how == Reading::lenient ? &out.warnings : nullptr;
  auto root = parse_config(source, tolerated);
  if (!root) return fail(std::move(root).error());
  if (root->kind == Kind::null) return out;
  const ConfigReader reader(source, tolerated);
  if (root->kind != Kind::map) {
    return reader.refuse(*root, "",
                         fmt::format("expected a map with {}, found {}", kClasses, root->described()));
  }
  bool is_ours = false;
  if (const ConfigMember* version = root->find(kVersion)) {
    is_ours = version->value.is_string() && version->value.text == "v2";
    // NVIDIA's program ignores this unknown key.
    if (!is_ours && how != Reading::lenient) {
      return reader.refuse(version->value, kVersion, "expected v2, found " + version->value.described(),
                           "NVIDIA's file has no such key");
    }
  }
  const ConfigReader strict(source);
  std::optional<Error> fault;
  const ClassPart part{.reader = is_ours ? &strict : &reader,
                       .fault = &fault,
                       .map = &*root,
                       .path = {},
                       .is_nvidias = !is_ours};
  part.check_keys({kArtifactsDir, kClasses},
                  {kVersion, "runtime", kRestart, "loadModules", kPodResources, "pull"});
  read_node(part, out);
  read_all_classes(part, out.classes);
  if (fault) return fail(std::move(*fault));
  return out;
}

Result<ClassFile> read_class_file(const std::filesystem::path& path, Reading how) {
  return read_carried(path, "class", how, &read_classes);
}

Result<KataClass> select_class(const ClassFile& file, std::string_view name) {
  std::vector<std::string> names;
  for (const KataClass& kata : file.classes) {
    const std::vector<std::string> handlers = kata.handlers();
    if (std::ranges::find(handlers, name) != handlers.end()) return kata;
    names.insert(names.end(), handlers.begin(), handlers.end());
  }
  return fail(Errc::invalid_config,
              fmt::format("{}: holds no class '{}'{}", file.file, name, did_you_mean(name, names)),
              names.empty() ? "it holds none" : fmt::format("it holds: {}", fmt::join(names, ", ")));
}

}  // namespace ferry::kata
