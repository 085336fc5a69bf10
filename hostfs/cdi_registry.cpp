// SPDX-License-Identifier: Apache-2.0
#include "hostfs/cdi_registry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fcntl.h>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>

#include "common/config/config_tree.h"
#include "common/text/text.h"

namespace ferry {
namespace {

using Kind = ConfigNode::Kind;

constexpr std::array<std::string_view, 4> kVersions = {"0.3.0", "0.4.0", "0.5.0", "0.6.0"};

/// Checks the name of a vendor, class or device; the caller checks the first character.
bool is_name(std::string_view text, std::string_view inner) {
  return !text.empty() && is_alphanumeric(text.back()) && std::ranges::all_of(text, [&](char c) {
    return is_alphanumeric(c) || inner.find(c) != std::string_view::npos;
  });
}
bool begins_with_letter(std::string_view text) {
  return !text.empty() && is_letter(text.front());
}

/// The Go library ignores the letter case of field names.
bool is_same_field(std::string_view a, std::string_view b) {
  return lower(a) == lower(b);
}

/// The library reads the spellings of a field in their order as bytes, and the last one counts.
const ConfigNode* field(const ConfigNode& map, std::string_view name) {
  const ConfigMember* found = nullptr;
  for (const ConfigMember& member : map.members) {
    if (!is_same_field(member.key.text, name) || member.value.kind == Kind::null) continue;
    if (found == nullptr || found->key.text < member.key.text) found = &member;
  }
  return found == nullptr ? nullptr : &found->value;
}
std::string text_of(const ConfigNode& map, std::string_view name) {
  const ConfigNode* value = field(map, name);
  return value == nullptr ? std::string() : value->text;
}
/// The items of a list; none: there is no such field.
std::span<const ConfigNode> items_of(const ConfigNode& map, std::string_view name) {
  const ConfigNode* value = field(map, name);
  return value == nullptr ? std::span<const ConfigNode>() : std::span(value->items);
}

struct Range {
  double least = 0;
  double most = 0;
};
constexpr double kMost32 = std::numeric_limits<std::uint32_t>::max();
constexpr double kMost64 = static_cast<double>(std::numeric_limits<std::int64_t>::max());
constexpr Range kUnsigned32 = {.least = 0, .most = kMost32};
constexpr Range kSigned64 = {.least = -kMost64, .most = kMost64};

/// The number of a plain scalar by the rules of Go's YAML library: 0x, 0b, 0o and a leading 0 say the base,
/// underscores separate digits, and a decimal fraction is a number too. Absent: it is no number.
std::optional<double> number_of(std::string text) {
  std::erase(text, '_');
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  const auto read = [&](std::size_t skipped, int base) -> std::optional<double> {
    const auto value = whole_number<std::uint64_t>(std::string_view(text).substr(skipped), base);
    if (!value) return std::nullopt;
    return negative ? -static_cast<double>(*value) : static_cast<double>(*value);
  };
  if (text.starts_with("0x") || text.starts_with("0X")) return read(2, 16);
  if (text.starts_with("0b") || text.starts_with("0B")) return read(2, 2);
  if (text.starts_with("0o") || text.starts_with("0O")) return read(2, 8);
  if (text.size() > 1 && text.starts_with('0'))
    if (const auto octal = read(1, 8)) return octal;
  if (text.empty() || !(text.front() == '.' || (text.front() >= '0' && text.front() <= '9')))
    return std::nullopt;
  const auto value = whole_number<double>(text);
  return value && negative ? -*value : value;
}

/// Checks one specification up to its first fault, like the library.
class Spec {
 public:
  /// Absent: the specification is valid.
  std::optional<std::string> check(const ConfigNode& root) {
    if (!check_fields(root)) return wrong_;
    if (!check_version(root) || !check_kind(root) || !check_edits(root, "the specification")) return wrong_;
    for (const ConfigNode& device : items_of(root, "devices"))
      if (!check_device(device)) break;
    return wrong_;
  }
  /// "nvidia.com/pgpu=8"
  std::vector<std::string> qualified_names() const {
    std::vector<std::string> out;
    for (const std::string& name : names_) out.push_back(fmt::format("{}={}", kind_, name));
    return out;
  }

 private:
  struct Shape {
    std::string_view name;
    Kind kind;
    std::optional<Range> number = {};  ///< then a whole number of these
    bool holds_text = false;           ///< of a list or a map: plain values
  };

  bool refuse(const ConfigNode& at, const std::string& what) {
    wrong_ = at.line > 0 ? fmt::format("line {}: {}", at.line, what) : what;
    return false;
  }

  /// False: a field is unknown or of the wrong kind.
  bool check_shape(const ConfigNode& node, std::string_view what, std::initializer_list<Shape> shapes) {
    if (node.kind == Kind::null) return true;
    if (node.kind != Kind::map) return refuse(node, fmt::format("{} has to be a map", what));
    for (const ConfigMember& member : node.members) {
      const auto* const shape = std::ranges::find_if(
          shapes, [&](const Shape& known) { return is_same_field(known.name, member.key.text); });
      if (shape == shapes.end())
        return refuse(member.key, fmt::format("unknown field \"{}\" in {}", member.key.text, what));
      if (member.value.kind == Kind::null) continue;
      if (member.value.kind != shape->kind) {
        return refuse(member.value, fmt::format("{} has to be a {}", shape->name,
                                                shape->kind == Kind::list  ? "list"
                                                : shape->kind == Kind::map ? "map"
                                                                           : "plain value"));
      }
      if (!check_number(member.value, *shape) || !check_texts(member.value, *shape)) return false;
    }
    return true;
  }

  bool check_number(const ConfigNode& value, const Shape& shape) {
    if (!shape.number) return true;
    const auto number = value.quoted ? std::nullopt : number_of(value.text);
    if (number && std::trunc(*number) == *number && *number >= shape.number->least &&
        *number <= shape.number->most)
      return true;
    return refuse(value,
                  fmt::format("{} is {}, and has to be a whole number{}", shape.name, value.described(),
                              shape.number->least < 0 ? "" : " from 0 to 4294967295"));
  }

  bool check_texts(const ConfigNode& value, const Shape& shape) {
    if (!shape.holds_text) return true;
    const auto is_text = [](const ConfigNode& item) {
      return item.kind == Kind::scalar || item.kind == Kind::null;
    };
    for (const ConfigNode& item : value.items)
      if (!is_text(item)) return refuse(item, fmt::format("{} has to be a list of plain values", shape.name));
    for (const ConfigMember& member : value.members)
      if (!is_text(member.value))
        return refuse(member.value, fmt::format("{} has to be a map of plain values", shape.name));
    return true;
  }

  bool check_shapes_in(const ConfigNode& edits, std::string_view list, std::string_view what,
                       std::initializer_list<Shape> shapes) {
    return std::ranges::all_of(items_of(edits, list),
                               [&](const ConfigNode& item) { return check_shape(item, what, shapes); });
  }

  bool check_fields_of_edits(const ConfigNode& user) {
    const ConfigNode* edits = field(user, "containerEdits");
    if (edits == nullptr) return true;
    constexpr Kind kPlain = Kind::scalar;
    constexpr Shape kEnv = {.name = "env", .kind = Kind::list, .holds_text = true};
    return check_shape(*edits, "containerEdits",
                       {kEnv, {"deviceNodes", Kind::list}, {"hooks", Kind::list}, {"mounts", Kind::list}}) &&
           check_shapes_in(*edits, "deviceNodes", "deviceNodes",
                           {{"path", kPlain},
                            {"hostPath", kPlain},
                            {"type", kPlain},
                            {"major", kPlain, kSigned64},
                            {"minor", kPlain, kSigned64},
                            {"fileMode", kPlain, kUnsigned32},
                            {"permissions", kPlain},
                            {"uid", kPlain, kUnsigned32},
                            {"gid", kPlain, kUnsigned32}}) &&
           check_shapes_in(*edits, "mounts", "mounts",
                           {{"hostPath", kPlain},
                            {"containerPath", kPlain},
                            {.name = "options", .kind = Kind::list, .holds_text = true},
                            {"type", kPlain}}) &&
           check_shapes_in(*edits, "hooks", "hooks",
                           {{"hookName", kPlain},
                            {"path", kPlain},
                            {.name = "args", .kind = Kind::list, .holds_text = true},
                            kEnv,
                            {"timeout", kPlain, kSigned64}});
  }

  bool check_fields(const ConfigNode& root) {
    constexpr Shape kTexts = {.name = "annotations", .kind = Kind::map, .holds_text = true};
    if (!check_shape(root, "the specification",
                     {{"cdiVersion", Kind::scalar},
                      {"kind", Kind::scalar},
                      kTexts,
                      {"devices", Kind::list},
                      {"containerEdits", Kind::map}}))
      return false;
    if (!check_fields_of_edits(root)) return false;
    return std::ranges::all_of(items_of(root, "devices"), [&](const ConfigNode& device) {
      return check_shape(device, "a device",
                         {{"name", Kind::scalar}, kTexts, {"containerEdits", Kind::map}}) &&
             check_fields_of_edits(device);
    });
  }

  /// Index in kVersions of the first version that has all fields used by `user`.
  static std::size_t needed_by(const ConfigNode& user) {
    std::size_t needed = 0;
    const ConfigNode* annotations = field(user, "annotations");
    if (annotations != nullptr && !annotations->members.empty()) needed = kAnnotations;
    const ConfigNode* edits = field(user, "containerEdits");
    if (edits == nullptr) return needed;
    if (std::ranges::any_of(items_of(*edits, "deviceNodes"), has_host_path))
      needed = std::max(needed, kHostPaths);
    if (std::ranges::any_of(items_of(*edits, "mounts"), has_type)) needed = std::max(needed, kMountTypes);
    return needed;
  }
  static bool has_host_path(const ConfigNode& node) { return !text_of(node, "hostPath").empty(); }
  static bool has_type(const ConfigNode& mount) { return !text_of(mount, "type").empty(); }

  bool check_version(const ConfigNode& root) {
    const std::string version = text_of(root, "cdiVersion");
    const auto* const known = std::ranges::find(kVersions, version.substr(version.starts_with('v') ? 1 : 0));
    const ConfigNode* at = field(root, "cdiVersion");
    if (known == kVersions.end()) {
      return refuse(at == nullptr ? root : *at,
                    fmt::format("cdiVersion is \"{}\", and Kata's library takes 0.3.0 to 0.6.0", version));
    }
    std::size_t needed = needed_by(root);
    const std::string kind = text_of(root, "kind");
    if (kind.find('.', kind.find('/') + 1) != std::string::npos && kind.find('/') != std::string::npos)
      needed = kAnnotations;  // a class with a dot needs the same version
    for (const ConfigNode& device : items_of(root, "devices")) {
      needed = std::max(needed, needed_by(device));
      if (const std::string name = text_of(device, "name"); !name.empty() && !begins_with_letter(name))
        needed = std::max(needed, kHostPaths);  // a name that begins with a digit needs this version
    }
    if (static_cast<std::size_t>(known - kVersions.begin()) >= needed) return true;
    return refuse(*at, fmt::format("cdiVersion is {}, and the file needs {}", version, kVersions.at(needed)));
  }

  bool check_kind(const ConfigNode& root) {
    kind_ = text_of(root, "kind");
    const ConfigNode* at = field(root, "kind");
    const std::size_t slash = kind_.find('/');
    const std::string vendor = kind_.substr(0, slash);
    const std::string name = slash == std::string::npos ? std::string() : kind_.substr(slash + 1);
    // The library crashes on a vendor or class of one letter.
    const auto is_part = [](const std::string& part) {
      return part.size() > 1 && begins_with_letter(part) && is_name(part, "_-.");
    };
    if (is_part(vendor) && is_part(name)) return true;
    return refuse(
        at == nullptr ? root : *at,
        fmt::format("kind is \"{}\", and has to be VENDOR/CLASS, of two letters or more each", kind_));
  }

  bool check_edits(const ConfigNode& user, const std::string& what) {
    const ConfigNode* edits = field(user, "containerEdits");
    if (edits == nullptr) return true;
    return check_variables(*edits, what) && check_nodes(*edits, what) && check_hooks(*edits, what) &&
           check_mounts(*edits, what);
  }

  bool check_variables(const ConfigNode& user, const std::string& what) {
    for (const ConfigNode& entry : items_of(user, "env")) {
      const std::size_t equals = entry.text.find('=');
      if (equals == std::string::npos || equals == 0)
        return refuse(entry, fmt::format("{}: env has \"{}\", which is no NAME=VALUE", what, entry.text));
    }
    return true;
  }

  bool check_nodes(const ConfigNode& edits, const std::string& what) {
    constexpr std::array<std::string_view, 5> kTypes = {"", "b", "c", "u", "p"};
    for (const ConfigNode& node : items_of(edits, "deviceNodes")) {
      if (text_of(node, "path").empty()) return refuse(node, what + ": a device node has no path");
      if (std::ranges::find(kTypes, text_of(node, "type")) == kTypes.end())
        return refuse(node, fmt::format("{}: a device node is of type \"{}\"", what, text_of(node, "type")));
      if (text_of(node, "permissions").find_first_not_of("rwm") != std::string::npos)
        return refuse(node, fmt::format("{}: a device node has permissions \"{}\"", what,
                                        text_of(node, "permissions")));
    }
    return true;
  }

  bool check_hooks(const ConfigNode& edits, const std::string& what) {
    constexpr std::array<std::string_view, 6> kHooks = {"prestart",       "createRuntime", "createContainer",
                                                        "startContainer", "poststart",     "poststop"};
    for (const ConfigNode& hook : items_of(edits, "hooks")) {
      if (std::ranges::find(kHooks, text_of(hook, "hookName")) == kHooks.end())
        return refuse(hook, fmt::format("{}: there is no hook \"{}\"", what, text_of(hook, "hookName")));
      if (text_of(hook, "path").empty()) return refuse(hook, what + ": a hook has no path");
      if (!check_variables(hook, what)) return false;
    }
    return true;
  }

  bool check_mounts(const ConfigNode& edits, const std::string& what) {
    for (const ConfigNode& mount : items_of(edits, "mounts")) {
      for (const char* path : {"hostPath", "containerPath"})
        if (text_of(mount, path).empty())
          return refuse(mount, fmt::format("{}: a mount has no {}", what, path));
    }
    return true;
  }

  bool check_device(const ConfigNode& device) {
    const std::string name = text_of(device, "name");
    const std::string what = fmt::format("device \"{}\"", name);
    if (name.empty() || !is_alphanumeric(name.front()) || !is_name(name, "_-.:"))
      return refuse(device, what + " has a name that CDI does not take");
    const ConfigNode* edits = field(device, "containerEdits");
    const auto has_items = [&](const char* list) { return !items_of(*edits, list).empty(); };
    constexpr std::array kLists = {"env", "deviceNodes", "hooks", "mounts"};
    if (edits == nullptr || std::ranges::none_of(kLists, has_items))
      return refuse(device, what + " has no containerEdits");
    if (!check_edits(device, what)) return false;
    if (std::ranges::find(names_, name) != names_.end()) return refuse(device, what + " is there twice");
    names_.push_back(name);
    return true;
  }

  static constexpr std::size_t kMountTypes = 1;   ///< index in kVersions
  static constexpr std::size_t kHostPaths = 2;    ///< also names that begin with a digit
  static constexpr std::size_t kAnnotations = 3;  ///< also classes with a dot
  std::optional<std::string> wrong_;
  std::string kind_;
  std::vector<std::string> names_;
};

bool is_specification(const DirectoryEntry& entry) {
  const auto suffix = std::filesystem::path(entry.name).extension();
  return !entry.is_directory && (suffix == ".json" || suffix == ".yaml");
}

/// Turns "/etc/cdi/nvidia.yaml:3: …" into "line 3: …".
std::string without_path(std::string message, const std::filesystem::path& file) {
  const std::string prefix = "/" + file.string() + ":";
  const bool has_line = message.starts_with(prefix) && message.size() > prefix.size() &&
                        message[prefix.size()] >= '0' && message[prefix.size()] <= '9';
  return has_line ? message.replace(0, prefix.size(), "line ") : message;
}

/// The library reads the first document of a file and no other.
std::string_view first_document(std::string_view text) {
  constexpr std::string_view kBreak = "\n---";
  constexpr std::string_view kBlank = " \t\r\n";
  for (auto at = text.find(kBreak); at != std::string_view::npos; at = text.find(kBreak, at + 1)) {
    const auto after = at + kBreak.size();
    if (after < text.size() && kBlank.find(text[after]) == std::string_view::npos) continue;
    bool has_content = false;
    for (std::string_view before = text.substr(0, at); !before.empty() && !has_content;) {
      const auto line = before.substr(0, before.find('\n'));
      before.remove_prefix(std::min(line.size() + 1, before.size()));
      const auto first = line.find_first_not_of(kBlank);
      has_content = first != std::string_view::npos && line[first] != '#' && line[first] != '%' &&
                    !(line.starts_with("---") && line.find_first_not_of(kBlank, 3) == std::string_view::npos);
    }
    if (has_content) return text.substr(0, at + 1);
  }
  return text;
}

class Reading {
 public:
  explicit Reading(const HostFs& host) : host_(host) {}

  void read(const std::filesystem::path& directory) {
    if (host_.link_target(directory)) return;  // Go's filepath.Walk enters no directory through a link
    const auto entries = host_.entries(directory);
    if (!entries) return;
    std::map<std::string, std::filesystem::path> names;
    for (const DirectoryEntry& entry : *entries)
      if (is_specification(entry)) read_file(directory / entry.name, names);
  }

  CdiRegistry registry;

 private:
  void fault(const std::filesystem::path& file, std::string what) {
    registry.faults.push_back({.file = "/" / file, .what = std::move(what)});
  }

  void read_file(const std::filesystem::path& file, std::map<std::string, std::filesystem::path>& names) {
    auto text = host_.read_file(file);
    if (!text && is_gone(text.error()) && !host_.link_target(file)) return;  // removed since it was listed
    ++registry.files;
    if (!text) return fault(file, text.error().message);
    const auto root = parse_config({.file = "/" + file.string(), .text = std::string(first_document(*text))});
    if (!root) return fault(file, without_path(root.error().message, file));
    Spec spec;
    if (auto wrong = spec.check(*root)) return fault(file, std::move(*wrong));
    for (const std::string& name : spec.qualified_names()) {
      const auto [other, is_new] = names.try_emplace(name, file);
      if (!is_new) fault(file, fmt::format("{} is in /{} too", name, other->second.string()));
      if (!is_new) return;  // the first duplicate is enough to report
    }
  }

  const HostFs& host_;
};

}  // namespace

CdiRegistry read_cdi_registry(const HostFs& host, std::span<const std::filesystem::path> directories) {
  Reading reading(host);
  for (const auto& directory : directories) reading.read(directory);
  return std::move(reading.registry);
}

std::string cdi_registry_stamp(const HostFs& host, std::span<const std::filesystem::path> directories) {
  std::string out;
  for (const auto& directory : directories) {
    const auto entries = host.entries(directory);
    if (!entries) continue;
    for (const DirectoryEntry& entry : *entries) {
      if (!is_specification(entry)) continue;
      const auto fd = host.open(directory / entry.name, O_PATH);
      struct stat status {};
      if (!fd || ::fstat(fd->get(), &status) != 0) status = {};
      out += fmt::format("{}/{} {} {} {}.{}\n", directory.string(), entry.name, status.st_ino, status.st_size,
                         status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
    }
  }
  return out;
}

}  // namespace ferry
