// SPDX-License-Identifier: Apache-2.0
#include "host/desired_file.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/config/config_reader.h"
#include "common/config/config_tree.h"
#include "policy/policy_yaml.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;
using Kind = ConfigNode::Kind;

constexpr const char* kVersion = "version";
constexpr const char* kGeneration = "generation";
constexpr const char* kPolicy = "policy";
constexpr const char* kConfig = "config";
constexpr const char* kFile = "file";
constexpr const char* kSource = "source";
constexpr std::int64_t kOurVersion = 2;
// The limit of any configuration file.
constexpr std::size_t kLargest = std::size_t{2} * 1024 * 1024;
constexpr std::chrono::nanoseconds kSettles = std::chrono::seconds(1);

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
    if (read_number(*node, kVersion) != kOurVersion)
      return refuse(*node, kVersion, "expected 2, found " + node->described());
    return {};
  }
  Result<std::optional<std::uint64_t>> generation() const {
    const ConfigNode* node = value(kGeneration);
    if (node == nullptr) return std::optional<std::uint64_t>();
    const auto number = read_number(*node, kGeneration);
    if (!number || *number < 0)
      return refuse(*node, kGeneration, "expected a number from 0 on, found " + node->described());
    return std::optional(static_cast<std::uint64_t>(*number));
  }
  Result<std::variant<ConfigText, fs::path>> config() const {
    constexpr const char* kHint = R"("config" takes the text of a policy file, "file" the path of one)";
    const ConfigNode* carried = value(kConfig);
    const ConfigNode* named = value(kFile);
    if (carried != nullptr && named != nullptr)
      return refuse(*named, kFile, "stands beside config; one of the two is expected", kHint);
    if (carried == nullptr && named == nullptr)
      return refuse(root_, kConfig, "the key is missing, and so is file", kHint);
    if (carried != nullptr) {
      auto text = string(kConfig, *carried);
      if (!text) return fail(std::move(text).error());
      return ConfigText{.file = source_.file,
                        .text = std::move(*text),
                        .first_line = carried->block_line.value_or(carried->line),
                        .one_line = !carried->block_line.has_value()};
    }
    auto path = word(kFile, kHint);
    if (!path) return fail(std::move(path).error());
    // The agent writes this file. Errors quote their input, so another path would let it read any file.
    if (!path->starts_with("/etc/ferry/") || path->find('\0') != std::string::npos ||
        fs::path(*path).lexically_normal() != *path)
      return refuse(*named, kFile,
                    fmt::format("expected a file below /etc/ferry, found '{}'", shortened(*path)),
                    "only root can write there");
    return fs::path(*path);
  }

 private:
  const ConfigText& source_;
  const ConfigNode& root_;
};

ConfigText as_text(const fs::path& file, std::string text) {
  return {.file = "/" + file.string(), .text = std::move(text)};
}

// The signs by which a change of a file is noticed.
struct Mark {
  std::chrono::nanoseconds written{};
  off_t size = 0;
  ino_t inode = 0;
  bool operator==(const Mark&) const = default;
};

// All zeros if the file does not exist; reading it gives the error.
Mark mark_of(const HostFs& host, const fs::path& path) {
  const auto fd = host.open(path.relative_path(), O_PATH);
  struct stat status {};
  if (!fd || ::fstat(fd->get(), &status) != 0) return {};
  return {.written =
              std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec),
          .size = status.st_size,
          .inode = status.st_ino};
}

// A file from the future, after the clock was set back, does not stay young for ever.
bool is_young(const Mark& mark) {
  const auto age = std::chrono::system_clock::now().time_since_epoch() - mark.written;
  return age > -kSettles && age < kSettles;
}

Result<ConfigText> read_named(const HostFs& host, const fs::path& path, bool& settling,
                              std::vector<std::string>* tolerated) {
  const Mark before = mark_of(host, path);
  auto text = host.read_file(path.relative_path());
  const Mark after = mark_of(host, path);
  settling = before != after || is_young(after);
  if (!text)
    return fail(Errc::invalid_config, text.error().message,
                "the file is named by desired.json's key \"file\"");
  if (text->size() > kLargest)
    return fail(Errc::invalid_config, fmt::format("{}: larger than {} MiB", path.string(), kLargest >> 20U));
  return carried_text(as_text(path.relative_path(), std::move(*text)), "policy", tolerated);
}

}  // namespace

Result<DesiredFile> read_desired_file(const ConfigText& source) {
  const auto root = parse_config(source);
  if (!root) return fail(Error(root.error()));
  const Reader reader(source, *root);
  if (root->kind != Kind::map)
    return reader.refuse(*root, "", "expected an object, found " + root->described(),
                         R"(as {"version": 2, "policy": "NAME", "file": "/etc/ferry/policy.yaml"})");
  if (auto known = reader.check_keys(*root, "", {kVersion, kGeneration, kPolicy, kConfig, kFile, kSource});
      !known)
    return fail(std::move(known).error());
  if (auto version = reader.check_version(); !version) return fail(std::move(version).error());
  auto generation = reader.generation();
  if (!generation) return fail(std::move(generation).error());
  auto policy = reader.word(kPolicy, "name the policy of the configuration that shall hold");
  if (!policy) return fail(std::move(policy).error());
  auto config = reader.config();
  if (!config) return fail(std::move(config).error());
  DesiredFile out{
      .generation = *generation, .policy = std::move(*policy), .config = std::move(*config), .source = {}};
  if (const ConfigNode* node = reader.value(kSource); node != nullptr) {
    auto text = reader.string(kSource, *node);
    if (!text) return fail(std::move(text).error());
    out.source = std::move(*text);
  }
  return out;
}

std::string desired_file_text(const DesiredFile& desired) {
  nlohmann::ordered_json file = {{kVersion, kOurVersion}};
  if (desired.generation) file[kGeneration] = *desired.generation;
  file[kPolicy] = desired.policy;
  if (const auto* carried = std::get_if<ConfigText>(&desired.config)) file[kConfig] = carried->text;
  if (const auto* named = std::get_if<fs::path>(&desired.config)) file[kFile] = named->string();
  if (!desired.source.empty()) file[kSource] = desired.source;
  return file.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<std::optional<DesiredState>> read_desired(const HostFs& host, const fs::path& file, Reading how) {
  auto text = host.read_file(file, HostFs::Links::refused);
  if (!text && is_gone(text.error())) return std::optional<DesiredState>();
  if (!text) return fail(std::move(text).error());
  if (text->size() > kLargest)
    return fail(Errc::invalid_config, fmt::format("/{}: larger than {} MiB", file.string(), kLargest >> 20U));
  const ConfigText source = as_text(file, std::move(*text));
  auto read = read_desired_file(source);
  if (!read) return fail(std::move(read).error());
  DesiredState out{.file = std::move(*read), .policy = {}, .text = source.text};
  ConfigText config;
  if (const auto* named = std::get_if<fs::path>(&out.file.config)) {
    auto of_file = read_named(host, *named, out.settling, how == Reading::lenient ? &out.warnings : nullptr);
    if (!of_file) return fail(std::move(of_file).error());
    config = std::move(*of_file);
    out.text += config.text;
  } else {
    config = std::get<ConfigText>(out.file.config);
  }
  auto policies = policy::read_policies(config, how);
  if (!policies) return fail(std::move(policies).error());
  // A plain policy file was read twice, so its warnings appear twice.
  for (std::string& warning : policies->warnings)
    if (std::ranges::find(out.warnings, warning) == out.warnings.end())
      out.warnings.push_back(std::move(warning));
  auto policy = policy::select_policy(*policies, out.file.policy);
  if (!policy) return fail(std::move(policy).error());
  out.policy = std::move(*policy);
  return std::optional(std::move(out));
}

std::optional<fs::path> named_file(const HostFs& host, const fs::path& file) {
  auto text = host.read_file(file, HostFs::Links::refused);
  if (!text) return std::nullopt;
  auto read = read_desired_file(as_text(file, std::move(*text)));
  if (!read) return std::nullopt;
  const auto* named = std::get_if<fs::path>(&read->config);
  return named == nullptr ? std::nullopt : std::optional(*named);
}

}  // namespace ferry::host
