// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/desired_classes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/config/config_reader.h"
#include "common/generation.h"
#include "common/text/json.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {
namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kVersion = "version";
constexpr const char* kGeneration = "generation";
constexpr const char* kConfig = "config";
constexpr const char* kClasses = "classes";
constexpr const char* kPermitted = "permitted";
constexpr const char* kUnlabelled = "unlabelled";
constexpr const char* kSource = "source";
constexpr const char* kConfidentialMode = "confidential_mode";

/// Reads parts of the document. Each error names the part's key.
class Reader : public ConfigReader {
 public:
  Reader(const ConfigText& source, const ConfigNode& root)
      : ConfigReader(source), source_(source), root_(root) {}

  Result<DesiredClasses> read() const {
    if (root_.kind != Kind::map) return refuse(root_, "", "expected an object, found " + root_.described());
    if (auto known = check_keys(
            root_, "",
            {kVersion, kGeneration, kConfig, kClasses, kPermitted, kUnlabelled, kSource, kConfidentialMode});
        !known)
      return fail(std::move(known).error());
    DesiredClasses out;
    const auto version = needed(kVersion);
    if (!version) return fail(version.error());
    if (read_number(**version, kVersion) != api::kDesiredClassesVersion)
      return refuse(**version, kVersion, "expected 2, found " + (*version)->described());
    const auto generation = needed(kGeneration);
    if (!generation) return fail(generation.error());
    const auto number = read_number(**generation, kGeneration);
    if (!number || *number < 0 || static_cast<std::uint64_t>(*number) > kLastGeneration)
      return refuse(**generation, kGeneration,
                    "expected a number from 0 to 2^53 - 1, found " + (*generation)->described());
    out.generation = static_cast<std::uint64_t>(*number);
    if (auto r = read_config(out.config); !r) return fail(std::move(r).error());
    const auto classes = needed(kClasses);
    if (!classes) return fail(classes.error());
    if (auto r = read_names(kClasses, **classes, out.classes); !r) return fail(std::move(r).error());
    const auto permitted = needed(kPermitted);
    if (!permitted) return fail(permitted.error());
    const auto flag = read_flag(**permitted, kPermitted);
    if (!flag) return fail(flag.error());
    out.permitted = *flag;
    if (const ConfigNode* node = value(kUnlabelled); node != nullptr) {
      std::vector<std::string> names;
      if (auto r = read_names(kUnlabelled, *node, names); !r) return fail(std::move(r).error());
      out.unlabelled = {names.begin(), names.end()};
    }
    if (const ConfigNode* node = value(kSource); node != nullptr) {
      if (!node->is_string()) return refuse(*node, kSource, "expected a string, found " + node->described());
      out.source = node->text;
    }
    if (const ConfigNode* node = value(kConfidentialMode); node != nullptr) {
      const auto state = node->is_string() ? confidential_state(node->text) : std::nullopt;
      if (!state)
        return refuse(*node, kConfidentialMode,
                      "expected on, off, devtools, ppcie or failed, found " + node->described());
      out.confidential_mode = *state;
    }
    return out;
  }

 private:
  const ConfigNode* value(const char* key) const {
    const ConfigMember* member = root_.find(key);
    return member == nullptr ? nullptr : &member->value;
  }
  Result<const ConfigNode*> needed(const char* key) const {
    const ConfigNode* node = value(key);
    if (node == nullptr) return refuse(root_, key, "the key is missing");
    return node;
  }
  Result<> read_config(ConfigText& into) const {
    const auto node = needed(kConfig);
    if (!node) return fail(node.error());
    const ConfigNode& config = **node;
    if (!config.is_string()) return refuse(config, kConfig, "expected a string, found " + config.described());
    into = {.file = source_.file,
            .text = config.text,
            .first_line = config.block_line.value_or(config.line),
            .one_line = !config.block_line.has_value()};
    return {};
  }
  Result<> read_names(const std::string& key, const ConfigNode& node, std::vector<std::string>& into) const {
    if (node.kind != Kind::list) return refuse(node, key, "expected a list, found " + node.described());
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const ConfigNode& item = node.items[i];
      const std::string place = fmt::format("{}[{}]", key, i);
      if (!item.is_string() || !is_handler_name(item.text))
        return refuse(item, place, "expected the name of a handler, found " + item.described());
      if (std::ranges::find(into, item.text) != into.end())
        return refuse(item, place, fmt::format("'{}' stands twice", item.text));
      into.push_back(item.text);
    }
    return {};
  }

  const ConfigText& source_;
  const ConfigNode& root_;
};

}  // namespace

Result<DesiredClasses> read_desired_classes(const ConfigText& source) {
  if (const std::string fault = beyond(source.text); !fault.empty())
    return fail(Errc::invalid_config, source.file + ": " + fault,
                "remove it: the agent writes it anew, and the classes stay until then");
  const auto root = parse_config(source);
  if (!root) return fail(root.error());
  return Reader(source, *root).read();
}

std::string desired_classes_text(const DesiredClasses& desired) {
  nlohmann::ordered_json file = {{kVersion, api::kDesiredClassesVersion},
                                 {kGeneration, desired.generation},
                                 {kConfig, desired.config.text},
                                 {kClasses, desired.classes},
                                 {kPermitted, desired.permitted}};
  if (!desired.unlabelled.empty()) file[kUnlabelled] = desired.unlabelled;
  if (!desired.source.empty()) file[kSource] = desired.source;
  if (desired.confidential_mode != ConfidentialMode::State::unknown)
    file[kConfidentialMode] = text(desired.confidential_mode);
  return json_text(file);
}

Result<ClassFile> desired_class_file(const DesiredClasses& desired) {
  auto file = read_classes(desired.config);
  if (!file) return file;
  for (const std::string& name : desired.classes) {
    auto there = select_class(*file, name);
    if (!there) return fail(std::move(there).error());
    if (there->name == name) continue;
    return fail(Errc::invalid_config,
                fmt::format("{}: {}: '{}' is an alias of the class {}", desired.config.file, kClasses, name,
                            there->name),
                "a class is named by its own name, and has its aliases with it");
  }
  std::erase_if(file->classes, [&](const KataClass& kata) {
    return std::ranges::find(desired.classes, kata.name) == desired.classes.end();
  });
  return file;
}

ConfidentialMode confidential_mode_of(const DesiredClasses& desired) {
  return {.state = desired.confidential_mode,
          .why_unknown = "the agent has not said that the node has a label for it"};
}

Result<std::optional<DesiredClasses>> read_desired_classes(const HostFs& host) {
  auto text = host.read_file(api::kDesiredClassesFile, HostFs::Links::refused);
  if (!text && is_gone(text.error())) return std::optional<DesiredClasses>();
  if (!text) return fail(std::move(text).error());
  return read_desired_classes(
      ConfigText{.file = std::string("/") + api::kDesiredClassesFile, .text = std::move(*text)});
}

}  // namespace ferry::kata
