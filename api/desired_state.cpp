// SPDX-License-Identifier: Apache-2.0
#include "api/desired_state.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/config/config_reader.h"
#include "common/generation.h"
#include "common/text/json.h"

namespace ferry::api {
namespace {

namespace fs = std::filesystem;
using Kind = ConfigNode::Kind;

constexpr const char* kVersion = "version";
constexpr const char* kGeneration = "generation";
constexpr const char* kPolicy = "policy";
constexpr const char* kConfig = "config";
constexpr const char* kFile = "file";
constexpr const char* kSource = "source";
constexpr const char* kCcMode = "cc_mode";

/// Reads parts of the document; errors name the key.
class Reader : public ConfigReader {
 public:
  Reader(const ConfigText& source, const ConfigNode& root)
      : ConfigReader(source), source_(source), root_(root) {}

  const ConfigNode* value(const char* key) const {
    const ConfigMember* member = root_.find(key);
    return member == nullptr ? nullptr : &member->value;
  }
  Result<std::string> string(const char* key, const ConfigNode& node) const {
    if (!node.is_string()) return refuse(node, key, "expected a string, found " + node.described());
    return node.text;
  }
  Result<std::string> word(const char* key, const std::string& hint) const {
    const ConfigNode* node = value(key);
    if (node == nullptr) return refuse(root_, key, "the key is missing", hint);
    auto text = string(key, *node);
    if (text && text->empty()) return refuse(*node, key, "empty", hint);
    return text;
  }
  Result<> check_version() const {
    const ConfigNode* node = value(kVersion);
    if (node == nullptr) return refuse(root_, kVersion, "the key is missing", "write \"version\": 2");
    if (read_number(*node, kVersion) != kDesiredVersion)
      return refuse(*node, kVersion, "expected 2, found " + node->described());
    return {};
  }
  Result<std::optional<std::uint64_t>> generation() const {
    const ConfigNode* node = value(kGeneration);
    if (node == nullptr) return std::optional<std::uint64_t>();
    const auto number = read_number(*node, kGeneration);
    const auto generation = number && *number >= 0 ? static_cast<std::uint64_t>(*number) : UINT64_MAX;
    if (generation > kLastGeneration)
      return refuse(*node, kGeneration, "expected a number from 0 to 2^53 - 1, found " + node->described());
    return std::optional(generation);
  }
  /// Reads the configuration, or the path of its file, into `desired`.
  Result<> config(DesiredFile& desired) const {
    constexpr const char* kHint = R"("config" takes the text of a policy file, "file" the path of one)";
    const ConfigNode* carried = value(kConfig);
    const ConfigNode* named = value(kFile);
    if (carried != nullptr && named != nullptr)
      return refuse(*named, kFile, "config is there, too; one of the two is expected", kHint);
    if (carried == nullptr && named == nullptr)
      return refuse(root_, kConfig, "the key is missing, and so is file", kHint);
    if (carried != nullptr) {
      auto text = string(kConfig, *carried);
      if (!text) return fail(std::move(text).error());
      desired.config = {.file = source_.file,
                        .text = std::move(*text),
                        .first_line = carried->block_line.value_or(carried->line),
                        .one_line = !carried->block_line.has_value()};
      return {};
    }
    auto path = word(kFile, kHint);
    if (!path) return fail(std::move(path).error());
    // The agent writes this file. Errors quote their input, so another path would let it read any file.
    if (!path->starts_with("/etc/ferry/") || path->find('\0') != std::string::npos ||
        fs::path(*path).lexically_normal() != *path)
      return refuse(*named, kFile,
                    fmt::format("expected a file below /etc/ferry, found '{}'", shortened(*path)),
                    "only root can write there");
    desired.file = *path;
    return {};
  }

 private:
  const ConfigText& source_;
  const ConfigNode& root_;
};

}  // namespace

Result<DesiredFile> read_desired_file(const ConfigText& source) {
  if (const std::string fault = beyond(source.text); !fault.empty())
    return fail(Errc::invalid_config, source.file + ": " + fault,
                "write it anew, or remove it: the agent writes its own file anew");
  const auto root = parse_config(source);
  if (!root) return fail(root.error());
  const Reader reader(source, *root);
  if (root->kind != Kind::map)
    return reader.refuse(*root, "", "expected an object, found " + root->described(),
                         R"(as {"version": 2, "policy": "NAME", "file": "/etc/ferry/policy.yaml"})");
  if (auto known =
          reader.check_keys(*root, "", {kVersion, kGeneration, kPolicy, kConfig, kFile, kSource, kCcMode});
      !known)
    return fail(std::move(known).error());
  if (auto version = reader.check_version(); !version) return fail(std::move(version).error());
  auto generation = reader.generation();
  if (!generation) return fail(std::move(generation).error());
  auto policy = reader.word(kPolicy, "name one policy of the configuration");
  if (!policy) return fail(std::move(policy).error());
  DesiredFile out{.generation = *generation, .policy = std::move(*policy)};
  if (auto config = reader.config(out); !config) return fail(std::move(config).error());
  if (const ConfigNode* node = reader.value(kSource); node != nullptr) {
    auto text = reader.string(kSource, *node);
    if (!text) return fail(std::move(text).error());
    out.source = std::move(*text);
  }
  if (const ConfigNode* node = reader.value(kCcMode); node != nullptr) {
    out.cc_mode = node->is_string() ? value_for(vfio::kWantedModes, node->text) : std::nullopt;
    if (!out.cc_mode || out.cc_mode == vfio::WantedMode::ppcie)
      return reader.refuse(*node, kCcMode, "expected off, on or devtools, found " + node->described(),
                           "`ferry cc set ppcie` sets protected PCIe");
  }
  return out;
}

std::string desired_file_text(const DesiredFile& desired) {
  nlohmann::ordered_json file = {{kVersion, kDesiredVersion}};
  if (desired.generation) file[kGeneration] = *desired.generation;
  file[kPolicy] = desired.policy;
  if (desired.file.empty()) file[kConfig] = desired.config.text;
  if (!desired.file.empty()) file[kFile] = desired.file.string();
  if (!desired.source.empty()) file[kSource] = desired.source;
  if (desired.cc_mode) file[kCcMode] = word_for(vfio::kWantedModes, *desired.cc_mode);
  return json_text(file);
}

}  // namespace ferry::api
